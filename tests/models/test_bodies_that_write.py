"""Bodies of branches and loops that write to memory from outside: the values of Python's own `if` and `while`.

Eager torch runs no such bodies, so a model is made twice: with torch's operators, and with Python's statements.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mycc
import pytest
import torch
from torch._higher_order_ops.map import map as torch_map


def _while_loop(test: Callable, body: Callable, values: tuple) -> Any:
    while test(*values):
        values = body(*values)
    return values


PYTHON = SimpleNamespace(
    cond=lambda flag, then, other, operands: then(*operands) if flag else other(*operands),
    while_loop=_while_loop,
)
TORCH = SimpleNamespace(cond=torch.cond, while_loop=torch.while_loop)
ZERO = torch.zeros((), dtype=torch.int64)


class Writing(torch.nn.Module):
    """Buffers whose names say which model has them: a package holds all."""

    def __init__(self, control: SimpleNamespace) -> None:
        super().__init__()
        self.control, held = control, torch.nn.Module()
        held.register_buffer("rows", torch.arange(32.0).reshape(4, 8))
        held.register_buffer("count", torch.zeros(()))
        self.add_module(type(self).__name__, held)

    @property
    def rows(self) -> torch.Tensor:
        return self.get_buffer(f"{type(self).__name__}.rows")

    @property
    def count(self) -> torch.Tensor:
        return self.get_buffer(f"{type(self).__name__}.count")


class Disjoint(Writing):
    """A loop that writes a part of a buffer and carries another one."""

    def forward(self, x):
        def body(i, a):
            self.rows[2:].add_(1)
            return i + 1, a + self.rows[2:] * x

        return self.control.while_loop(lambda i, a: i < 2, body, (ZERO, self.rows[:2]))[1]


class Overlapping(Writing):
    """What the loop carries is in the first turn a view of what it writes."""

    def forward(self, x):
        def body(i, a):
            self.rows[1:, 0].mul_(2)
            b = a + x
            self.rows[0] += a.sum(0)
            return i + 1, b + a

        return self.control.while_loop(lambda i, a: i < 3, body, (ZERO, self.rows.t()[:, 1:].t()[:2]))[1]


class OfAnArgument(Writing):
    """A view of the argument is written, by places that data names."""

    def forward(self, x):
        turned, places = x.t(), torch.tensor([1, 1, 0])

        def body(i, a):
            turned[:, 0] += 1
            x[0].index_add_(0, places, a[:3])
            return i + 1, a + turned[:, 1]

        return self.control.while_loop(lambda i, a: i < 2, body, (ZERO, x[0].clone()))[1] * turned.sum()


class CountingTest(Writing):
    """The test of the loop counts, before the loop and in each turn, and reads what the body wrote."""

    def forward(self, x):
        self.count.add_(1)

        def test(i, a):
            self.count.add_(1)
            return (i < 3) & (self.rows[0, 0] < 100)

        def body(i, a):
            self.rows.mul_(2)
            return i + 1, a + self.count

        return self.control.while_loop(test, body, (ZERO, x))[1], self.count.clone()


class Rows(Writing):
    """A row of a cache in each turn."""

    def forward(self, x):
        def body(i, a):
            self.rows.index_copy_(0, i.reshape(1), a[:1])
            return i + 1, a + 1

        return self.control.while_loop(lambda i, a: i < 3, body, (ZERO, x))[1] + self.rows.sum()


class Branches(Writing):
    """Each side writes something else; what is read behind it is new."""

    def forward(self, x):
        part = self.rows[:, 1:3]

        def then(x):
            part.add_(x[0, 0])
            return x + self.rows[:2]

        def other(x):
            self.count.add_(1)
            return x * self.count

        y = self.control.cond(x.sum() > self.count, then, other, (x,))
        part.mul_(0.5)
        return y, self.rows.sum(0)


class OfAnIntermediate(Writing):
    """A branch in a loop writes what the model has computed."""

    def forward(self, x):
        y = x * 2
        view = y[:, ::2]

        def then():
            view.sub_(1)
            return y.sum()

        def body(i, a):
            return i + 1, a + self.control.cond(a > 0, then, lambda: y[0].sum() + self.count, ())

        return self.control.while_loop(lambda i, a: i < 3, body, (ZERO, x.sum()))[1], y


MODELS = (Disjoint, Overlapping, OfAnArgument, CountingTest, Rows, Branches, OfAnIntermediate)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = {model.__name__: (model(TORCH).eval(), (torch.ones(2, 8),)) for model in MODELS}
    return mycc.compile(entries, out=tmp_path_factory.mktemp("writing") / "writing.pkg")


@pytest.mark.parametrize("number", range(len(MODELS)), ids=[m.__name__ for m in MODELS])
def test_as_python(package: Path, number: int) -> None:
    made = mycc.load(package)
    model, entry = MODELS[number](PYTHON), made.entry(MODELS[number].__name__)
    for turn in range(3):
        x = torch.randn(2, 8, generator=torch.Generator().manual_seed(turn))
        mine = x.clone()
        torch.testing.assert_close(entry(mine), model(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mine, x)
        for name, buffer in model.named_buffers():
            if name in made.state:
                torch.testing.assert_close(torch.as_tensor(made.state[name]), buffer, rtol=1e-4, atol=1e-4)


class Carried(Writing):
    def forward(self, x):
        def body(i, a):
            a.add_(1)
            return i + 1, a * 2

        return self.control.while_loop(lambda i, a: i < 2, body, (ZERO, x))[1]


class Sliced(Writing):
    def forward(self, x):
        def row(r):
            self.rows.add_(1)
            return r * 2

        return torch_map(row, self.rows)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Carried, r"writes to what the loop carries\n.*while_loop(.|\n)*Return the new value"),
        (Sliced, r"a map, scan or associative_scan writes to memory from outside\n.*torch_map(.|\n)*while_loop"),
    ],
)
def test_refusals(model: type[Writing], message: str, tmp_path: Path) -> None:
    with pytest.raises(mycc.CompileError, match=message):
        mycc.compile(model(TORCH), (torch.randn(2, 8),), out=tmp_path / "a.pkg")
