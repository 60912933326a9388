"""Models that assert something of their values: with inputs that are right, and with others and what each is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """right: inputs for which the model runs, the example first. wrong: inputs, and a pattern of the message."""

    function: Callable[..., Any]
    right: tuple[Inputs, ...]
    wrong: tuple[tuple[Inputs, str], ...]


HERE = r"\(assertion_models\.py:{}\)"
X = torch.tensor([[0.5, 1.5, -2.0], [3.0, 0.25, 1.5], [0.0, 4.0, 1.0], [1.0, 2.0, 3.0]])


def _line(function: Callable[..., Any], offset: int) -> str:
    return HERE.format(function.__code__.co_firstlineno + offset)


def looked_up(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    torch._assert_async(((ids >= 0) & (ids < table.shape[0])).all(), "ids: no such\n  row")
    return torch.nn.functional.embedding(ids, table) * 2


def unread(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    torch._assert_async(y.sum())
    torch._assert_async(y.isfinite().all(), 'not "finite"')
    return x + 1


def in_a_branch(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    def then(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "then: not positive")
        return x.log()

    return torch.cond(flag, then, lambda x: x * 2, (x,))


def in_a_loop(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch._assert_async(x.max() < 100, "too large on the way")
        return i + 1, x * 2

    return torch.while_loop(lambda i, x: i < n, body, (torch.zeros((), dtype=torch.int64), x))[1]


def fraction(x: torch.Tensor) -> torch.Tensor:
    total = x.sum().item()
    torch._check(total > -1)
    return x * total


def negative(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k >= -3)
    torch._check(k < 5)
    return x * k


def in_a_range(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch.sym_constrain_range(k, min=-3, max=4)
    return x * k


def one_of(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check((k == 1) | (k == 4))
    return x + k


def known(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k == -3)
    return x * k


def truth(x: torch.Tensor) -> torch.Tensor:
    torch._check((x > -10).all().item())
    return x * 2


def multiple(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    torch._check(k % 2 == 0)
    return x[:k]


def fixed(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k == 3)
    return x[:k]


def unread_size(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.nonzero().shape[0] <= 11)
    return x + 1


def complex_number(x: torch.Tensor) -> torch.Tensor:
    torch._assert_async(torch.complex(x.sum(), x.max()))
    return x - 1


def number(value: int) -> torch.Tensor:
    return torch.tensor(value)


IDS = torch.tensor([[0, 3], [1, 2]])
TOLD = r"assertion_models\.py:\d+ .*: .*{} does not hold"

CASES: dict[str, Case] = {
    "of indices": Case(
        looked_up,
        ((IDS, X),),
        (((IDS + 1, X), rf"ids: no such row {_line(looked_up, 1)}"), ((IDS - 9, X), "ids: no such row")),
    ),
    "of what nobody reads": Case(
        unread,
        ((X,),),
        (
            ((X - 1000,), f"an assertion does not hold {_line(unread, 2)}"),
            ((X + 1000,), f'not "finite" {_line(unread, 3)}'),
        ),
    ),
    "in a branch": Case(
        in_a_branch,
        ((X + 3, torch.tensor(True)), (X, torch.tensor(False))),
        (((X, torch.tensor(True)), "then: not positive"),),
    ),
    "in a loop": Case(in_a_loop, ((X, number(3)), (X * 30, number(0))), (((X, number(9)), "too large on the way"),)),
    "a fraction": Case(fraction, ((X,),), (((X - 5,), TOLD.format("zuf0.*")),)),
    "a negative number": Case(
        negative,
        ((X, number(-3)), (X, number(4))),
        (((X, number(-4)), TOLD.format("u0 >= -3")), ((X, number(5)), TOLD.format("u0 <= 4"))),
    ),
    "in a range": Case(
        in_a_range,
        ((X, number(-3)), (X, number(4))),
        (((X, number(-4)), TOLD.format("u0 >= -3")), ((X, number(5)), TOLD.format("u0 <= 4"))),
    ),
    "one of two": Case(one_of, ((X, number(1)), (X, number(4))), (((X, number(3)), TOLD.format(r"Eq\(u0, 1\).*")),)),
    "a known number": Case(known, ((X, number(-3)),), (((X, number(-4)), TOLD.format("u0 >= -3")),)),
    "a truth value": Case(truth, ((X,),), (((X - 20,), TOLD.format(r"Eq\(u0, 1\)")),)),
    "a multiple": Case(
        multiple, ((X, number(2)), (X, number(0))), (((X, number(3)), TOLD.format(r"Mod\(u0, 2\) == 0")),)
    ),
    "a fixed size": Case(fixed, ((X, number(3)),), (((X, number(2)), "has to be 3|out of its range"),)),
    "a size that nobody reads": Case(
        unread_size, ((X,),), (((X + 5,), "has to be .*11|out of its range|does not hold"),)
    ),
    "a complex number": Case(complex_number, ((X,),), (((X * 0,), "an assertion does not hold"),)),
}
#: why torch does not export some of them
UNEXPORTED = {"a fraction": "torch before 2.13 exports no check of a fraction"} if torch.__version__ < "2.13" else {}
EXPORTED = {name: case for name, case in CASES.items() if name not in UNEXPORTED}
