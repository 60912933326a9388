"""Noise in the float64 run: what it moves, what jumps with it, and the order of equal elements."""

from __future__ import annotations

import math

import pytest
import torch
from mycc.compiler.capture import ModelGraph, capture
from mycc.compiler.verify import eager, reference
from mycc.compiler.verify.condition import LARGE, Noise, chooses, jumps, noisy
from mycc.compiler.verify.judge import mostly_jumps
from mycc.compiler.verify.ties import UNSPECIFIED, settled
from mycc.compiler.verify.trial import Compared
from torch import Tensor

aten = torch.ops.aten


def jumping(graph: ModelGraph, inputs: list[Tensor], reverse: bool = False) -> Tensor:
    exact = reference(graph, inputs)[0]
    masks = [
        jumps(exact, *(noisy(graph, inputs, Noise(seed, a, reverse))[0] for a in (1.0, LARGE))) for seed in range(8)
    ]
    return torch.stack(masks).any(0)


def test_noise_is_as_large_as_one_rounding() -> None:
    x = torch.randn(1000)
    graph = capture(lambda x: x * 3, (x,))
    exact, moved = reference(graph, [x])[0], noisy(graph, [x], Noise(0))[0]
    off = ((moved - exact) / exact).abs()
    assert 0 < off.max() <= torch.finfo(torch.float32).eps / 2
    again = noisy(graph, [x], Noise(0, LARGE))[0]
    assert torch.allclose(again - exact, (moved - exact) * LARGE, rtol=1e-6)


def test_what_a_dtype_holds_stays() -> None:
    x = torch.randint(-9, 9, (100,)).float()
    graph = capture(lambda x: (x * 2 + 1).round(), (x,))
    assert torch.equal(noisy(graph, [x], Noise(1))[0], reference(graph, [x])[0])


def test_smooth_functions_do_not_jump() -> None:
    x = torch.randn(64, 64)
    graph = capture(lambda x: torch.softmax(x @ x.T, -1).tanh().sum(0).exp(), (x,))
    assert not chooses(graph)
    assert not jumping(graph, [x]).any()


def test_roundings_jump_where_they_are_near() -> None:
    x = torch.tensor([0.5, 0.3, 2.5, 7.1])
    graph = capture(lambda x: (x * math.pi / math.pi).round(), (x,))
    assert chooses(graph)
    assert jumping(graph, [x]).tolist() == [True, False, True, False]


def _mostly_jumps(own: Tensor, wanted: Tensor) -> bool:
    return mostly_jumps(Compared(own, own, wanted.double()))


def test_an_error_of_few_elements_is_that_of_jumps() -> None:
    wanted = torch.randn(1000, dtype=torch.float64) * 100
    own = wanted.float()
    assert not _mostly_jumps(own, wanted)
    own[3] += 1
    assert _mostly_jumps(own, wanted)


def test_the_error_of_what_a_step_writes_in_a_cache_is_no_jump() -> None:
    """Most elements are zeros on both sides."""
    wanted = torch.zeros(100, 64, dtype=torch.float64)
    wanted[7] = torch.randn(64, dtype=torch.float64)
    own = wanted.float() * (1 + 1e-7)
    assert not _mostly_jumps(own, wanted)
    own[7, 1] += 0.1
    assert _mostly_jumps(own, wanted)


def test_whole_numbers_that_are_not_all_the_same_jumped() -> None:
    wanted = torch.arange(1000, dtype=torch.float64)
    own = wanted.float()
    assert not _mostly_jumps(own, wanted)
    own[[3, 500]] += 1
    assert _mostly_jumps(own, wanted)


def test_rows_that_hang_on_equal_elements_jump() -> None:
    x, table = torch.tensor([[1.0, 3, 3, 0], [1, 2, 3, 0]]), torch.arange(4.0)
    graph = capture(lambda x, table: table[x.topk(1, 1).indices], (x, table))
    assert not jumping(graph, [x, table]).any()
    assert jumping(graph, [x, table], reverse=True).tolist() == [[True], [False]]


def test_the_first_of_several_writes() -> None:
    x, i, values = torch.zeros(4), torch.tensor([1, 1, 2]), torch.tensor([5.0, 6, 7])
    assert settled(aten.index_put.default, (x, [i], values), {}) is None
    for operator, args in (
        (aten.index_put.default, (x, [i], values)),
        (aten.scatter.src, (x, 0, i, values)),
        (aten.index_copy.default, (x, 0, i, values)),
    ):
        assert settled(operator, args, {}, reverse=True).tolist() == [0, 5, 7, 0]
        assert operator(*args).tolist() == [0, 6, 7, 0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.topk.default, (4, 1)),
        (aten.topk.default, (2, 0, False)),
        (aten.sort.default, (1, True)),
        (aten.kthvalue.default, (3, 1, True)),
        (aten.median.dim, (1, True)),
        (aten.nanmedian.dim, (1, True)),
    ],
)
def test_values_are_torchs_own(operator: torch._ops.OpOverload, args: tuple[object, ...], reverse: bool) -> None:
    assert operator in UNSPECIFIED
    x = torch.randint(0, 4, (5, 9)).float()
    x[0, 3] = torch.nan
    values, places = settled(operator, (x, *args), {}, reverse)
    assert torch.equal(values.nan_to_num(9), operator(x, *args)[0].nan_to_num(9))
    dim = 0 if args == (2, 0, False) else 1
    assert torch.equal(x.gather(dim, places).nan_to_num(9), values.nan_to_num(9))


def test_the_plain_run_takes_the_first_of_equal_elements() -> None:
    x = torch.randint(0, 3, (4, 40))
    graph = capture(lambda x: x.topk(5, 1).indices, (x,))
    assert torch.equal(eager(graph, [x])[0], x.sort(dim=1, descending=True, stable=True).indices[:, :5])
