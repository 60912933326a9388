"""Arguments and results of calls: views, strides, changes in place, numbers, sizes; each as eager torch has it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.backend.runner import _from_nothing
from torch.utils import _pytree as pytree

from .support import compiled

Tensor = torch.Tensor


def writes_argument(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def writes_view(x: Tensor) -> Tensor:
    x[1:3].mul_(2)
    return x.sum()


def writes_two(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y)
    y.mul_(2)
    return x + y


def writes_intermediate(x: Tensor) -> Tensor:
    y = x * 2
    y[0].zero_()
    y[:, 1] += 1
    return y


def out_argument(x: Tensor, out: Tensor) -> Tensor:
    return torch.add(x, 1, out=out)


def views_of_argument(x: Tensor) -> tuple[Tensor, ...]:
    return x, x[1:], x.t(), x[:, ::2].view(-1, 3, 1), x + 1


def views_of_result(x: Tensor) -> tuple[Tensor, ...]:
    y = x.sin()
    return y, y.t(), y[1:], y.expand(2, *y.shape), y.split(2)[1]


def other_strides(x: Tensor) -> tuple[Tensor, ...]:
    return (x.t() @ x).t(), x.permute(1, 0) * 2, F.relu(x)


def no_tensors(x: Tensor) -> tuple[Any, ...]:
    return None, x * 2, 3, "text", x.shape[0]


def without_arguments(x: Tensor) -> tuple[Tensor, ...]:
    return torch.arange(5) * 2, torch.ones(2, 2).bfloat16() + 1


def empty(x: Tensor) -> tuple[Tensor, ...]:
    return x[:0] * 2, x.new_zeros(0, 3)


def types(x: Tensor) -> tuple[Tensor, ...]:
    return x.double(), x.half() * 2, x.bfloat16() + 1, (x * 3).int(), x > 0, (x > 0).any()


def complex_numbers(x: Tensor) -> tuple[Tensor, ...]:
    z = torch.view_as_complex(torch.stack([x, x * 2], -1))
    return z * z, z.abs()


def branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def graph_break(x: Tensor) -> Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


def numbers(x: Tensor, n: int, a: float) -> Tensor:
    return x.reshape(-1, n) * n + a


def halves(whole: Tensor) -> list[Tensor]:
    return [whole[:, :2], whole[:, 2:4]]


CALLS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "writes argument": (writes_argument, lambda: [torch.randn(4, 6)]),
    "writes slice": (writes_argument, lambda: [torch.randn(10)[2:7]]),
    "writes view": (writes_view, lambda: [torch.randn(4, 6)]),
    "writes two": (writes_two, lambda: [torch.randn(4, 6), torch.randn(4, 6)]),
    "writes every other row": (writes_two, lambda: [torch.randn(8, 6)[::2], torch.randn(4, 6)]),
    "writes a half beside the other": (writes_two, lambda: halves(torch.randn(4, 4))),
    "writes intermediate": (writes_intermediate, lambda: [torch.randn(4, 6)]),
    "out": (out_argument, lambda: [torch.randn(4, 6), torch.empty(4, 6)]),
    "views of argument": (views_of_argument, lambda: [torch.randn(4, 6)]),
    "views of part": (views_of_argument, lambda: [torch.randn(6, 8)[1:5, 1:7]]),
    "views of result": (views_of_result, lambda: [torch.randn(4, 6)]),
    "other strides": (other_strides, lambda: [torch.randn(6, 4).t()]),
    "channels last": (F.relu, lambda: [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)]),
    "expanded": (lambda x: x + 1, lambda: [torch.randn(4, 1).expand(4, 5)]),
    "no tensors": (no_tensors, lambda: [torch.randn(4, 6)]),
    "without arguments": (without_arguments, lambda: [torch.randn(1)]),
    "empty": (empty, lambda: [torch.randn(4, 6)]),
    "types": (types, lambda: [torch.randn(4, 6)]),
    "complex": (complex_numbers, lambda: [torch.randn(4, 6)]),
    "branch": (branch, lambda: [torch.randn(4, 6)]),
    "graph break": (graph_break, lambda: [torch.randn(4, 6)]),
    "numbers": (numbers, lambda: [torch.randn(4, 6), 3, 0.5]),
}


def same(got: Any, wanted: Any) -> None:
    """Equal in values, types and strides; tensors that lie over each other do so in both."""
    pairs = list(zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=True))
    for a, b in pairs:
        if isinstance(b, Tensor):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)
            assert a.stride() == b.stride() or b.numel() < 2
        else:
            assert a == b
    tensors = [(a, b) for a, b in pairs if isinstance(b, Tensor) and b.numel()]
    assert _groups([a for a, _ in tensors]) == _groups([b for _, b in tensors])


def _groups(tensors: list[Tensor]) -> list[list[bool]]:
    """Which of them share memory."""
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [[a == b for b in places] for a in places]


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CALLS)
def test_call(name: str, dynamic: bool) -> None:
    function, make = CALLS[name]
    torch.manual_seed(1)
    args = make()
    own = copy.deepcopy(args)
    wanted = function(*args)
    with torch.no_grad():
        got = compiled(function, dynamic=dynamic)(*own)
    same((got, own), (wanted, args))


def test_results_without_inputs_have_any_dtype() -> None:
    """Other modules of the process may have imported ml_dtypes, whose bfloat16 the package then gives."""
    pytest.importorskip("ml_dtypes")
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        (found,) = _from_nothing(lambda dtype=dtype: [_named(torch.full((2, 2), 2.0), dtype)])()
        assert found.dtype == dtype
        assert found.float().tolist() == [[2.0, 2.0], [2.0, 2.0]]


def _named(value: Tensor, dtype: torch.dtype) -> Any:
    """The array of ml_dtypes with these values."""
    import ml_dtypes

    return value.numpy().astype(getattr(ml_dtypes, str(dtype).removeprefix("torch.")))
