"""Compiled functions beside eager torch in float64."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from mycc.compiler.backend.backend import backend
from mycc.compiler.backend.notices import FallbackWarning
from torch import nn
from torch.utils import _pytree as pytree

Compiled = Callable[..., Any]


def compiled(function: Any, options: Mapping[str, Any] | None = None, **words: Any) -> Any:
    """torch.compile with this backend, by its function: where mycc was installed before it had one, torch does not know
    the name. Its C++ is compiled in little time."""
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, options={"build.flags": "-O0", **(options or {})}, **words)


def double(value: Any) -> Any:
    return pytree.tree_map(lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, value)


def error(value: Any, reference: Any) -> float:
    """The largest difference, by the largest number of the reference where that is above 1."""
    worst = 0.0
    pairs = zip(pytree.tree_leaves(value), pytree.tree_leaves(reference), strict=True)
    for got, wanted in pairs:
        if not isinstance(wanted, torch.Tensor):
            assert got == wanted  # None among the gradients, too
            continue
        assert got.shape == wanted.shape
        if not wanted.is_floating_point():
            assert torch.equal(got, wanted)
            continue
        assert torch.equal(got.isnan(), wanted.isnan())
        if wanted.numel():
            scale = max(1.0, float(wanted.abs().nan_to_num(0.0).max()))
            worst = max(worst, float((got.double() - wanted.double()).abs().nan_to_num(0.0).max()) / scale)
    return worst


def step(model: nn.Module, args: Sequence[Any], call: Callable[..., Any]) -> tuple[Any, list[torch.Tensor | None]]:
    """Results of a call, and the gradients of all parameters and inputs for a fixed cotangent."""
    given = [a.detach().clone().requires_grad_() if _differentiable(a) else a for a in args]
    model.zero_grad()
    torch.manual_seed(7)
    result = call(*given)
    leaves = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    sum((t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).reshape(t.shape)).sum() for t in leaves).backward()
    grads = [p.grad for p in model.parameters()] + [a.grad for a in given if _differentiable(a)]
    return pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, result), grads


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def check(
    model: nn.Module, args: Sequence[Any], train: bool = False, calls: int = 1, slack: float = 2e-6, **words: Any
) -> list[str]:
    """Compares a model with eager torch, both against float64; the notices of what fell back."""
    own, reference = copy.deepcopy(model), copy.deepcopy(model).double()
    function = compiled(own, **words)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(calls):
            _compare(model, own, reference, function, args, train, slack)
    assert error(dict(own.named_buffers()), double(dict(reference.named_buffers()))) <= slack
    return [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]


def _compare(
    model: nn.Module,
    own: nn.Module,
    reference: nn.Module,
    function: Compiled,
    args: Sequence[Any],
    train: bool,
    slack: float,
) -> None:
    if train:
        got, wanted = step(own, args, function), step(reference, double(list(args)), reference)
        eager = step(model, args, model)
        assert [g is None for g in got[1]] == [g is None for g in wanted[1]]
        got, wanted, eager = ((r, [g for g in grads if g is not None]) for r, grads in (got, wanted, eager))
    else:
        with torch.no_grad():
            got, wanted, eager = function(*args), reference(*double(list(args))), model(*args)
    assert error(got, wanted) <= 2 * error(eager, wanted) + slack
