"""Gradients of op_db's entries: torch's own AOTAutograd traces forward and backward, mycc compiles that graph.

A call takes an entry's tensors and a random cotangent of each result that has a derivative; its results are the
gradients of the tensors that want one. Eager's are those of torch.autograd.grad.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch.utils import _pytree as pytree

from .catalog import SEED, Call, Entry, eager
from .tally import Group, Tally

SOURCE = "gradients"
SAMPLES = 4  # of each entry
_LOOKED_AT = 60  # samples of an entry that they are taken from
_LARGEST = 20000  # elements of a call's tensors together


def _power_sums(parts: Sequence[Any]) -> list[Any]:
    """Of eigenvalues, which have no order."""
    return [(parts[0] ** k).sum(-1) for k in range(1, parts[0].shape[-1] + 1)]


#: what is determined of results where torch's own form of them still has an order
_DETERMINED = {"linalg.eig": _power_sums, "linalg.eigvals": _power_sums}


class Traced(torch.nn.Module):
    """The joint graph of a call as a module: of tensors and cotangents, to gradients."""

    def __init__(self, graph: torch.nn.Module, tensors: int) -> None:
        super().__init__()
        self.graph, self.tensors = graph, tensors

    def forward(self, *given: torch.Tensor) -> list[torch.Tensor]:
        _, found = self.graph(list(given[: self.tensors]), list(given[self.tensors :]))
        return [g for g in found if g is not None]


class GradientCall(Call):
    """The gradients of a call; `forward` is torch's autograd, `module` what AOTAutograd has traced.

    Raises:
        Exception: whatever torch raises where the call has no gradient, or AOTAutograd does not trace it.
    """

    plain = True

    def __init__(self, entry: Entry, sample: Any) -> None:
        super().__init__(entry.op.op, (sample.input, *sample.args), dict(sample.kwargs))
        self._process = sample.output_process_fn_grad
        if entry.name in _DETERMINED:
            self._process = lambda y: _DETERMINED[entry.name](pytree.tree_leaves(y))
        leaves = pytree.tree_leaves((sample.input, *sample.args, sample.kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._wanted = [x.requires_grad for x in tensors]
        self._count = len(tensors)
        if not any(self._wanted):
            raise ValueError("no tensor wants a gradient")
        torch.manual_seed(SEED)
        outputs = self._outputs([_leaf(x, wanted) for x, wanted in zip(tensors, self._wanted, strict=True)])
        torch.manual_seed(SEED + 1)
        cotangents = [torch.randn(y.shape, dtype=y.dtype) for y in outputs]
        self.inputs = (*self.inputs, *cotangents)
        self._traced: Traced | None = None
        self._given: list[bool] | None = None

    def trace(self) -> None:
        """Has AOTAutograd trace the call."""
        tensors = self.inputs[: self._count]
        given = tuple(_leaf(x, wanted) for x, wanted in zip(tensors, self._wanted, strict=True))
        graph: Any = aot_export_joint_simple(lambda *xs: tuple(self._outputs(xs)), given, trace_joint=True)
        if len(graph.graph.find_nodes(op="placeholder")) != len(self.inputs):
            raise ValueError("AOTAutograd's graph has further inputs")
        found = list(graph.graph.output_node().args[0])[-len(tensors) :]
        self._given = [g is not None for g in found]
        self._traced = Traced(graph, self._count)

    @property
    def module(self) -> torch.nn.Module:
        assert self._traced is not None, "not traced"
        return self._traced

    def forward(self, *given: torch.Tensor) -> list[torch.Tensor]:
        with torch.enable_grad():
            tensors = [_leaf(x, w) for x, w in zip(given[: self._count], self._wanted, strict=True)]
            wanted = [x for x in tensors if x.requires_grad]
            outputs = self._outputs(tensors)
            found = torch.autograd.grad(outputs, wanted, list(given[self._count :]), allow_unused=True)
        left = iter(found)
        every = [next(left) if w else None for w in self._wanted]
        assert self._given is not None, "not traced"
        rows = zip(every, tensors, self._given, strict=True)
        return [torch.zeros_like(x) if g is None else g for g, x, traced in rows if traced]

    def _outputs(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Results that have a derivative, as tensors of their own: a view's gradient is that of its copy."""
        result = self._process(super().forward(*tensors))
        leaves = [y for y in pytree.tree_leaves(result) if isinstance(y, torch.Tensor)]
        found = [y.clone() for y in leaves if y.requires_grad]
        if not found:
            raise ValueError("no result has a derivative")
        return found

    def with_inputs(self, inputs: Sequence[torch.Tensor]) -> Call:
        raise NotImplementedError("gradients are those of the entry's own samples")


def _leaf(x: torch.Tensor, wanted: bool) -> torch.Tensor:
    """A tensor that the trace or autograd starts from."""
    return x.detach().clone().requires_grad_(wanted)


def groups_of_gradients(tally: Tally) -> list[Group]:
    """The entry's calls that have gradients in eager, as one group; those that AOTAutograd does not trace are counted
    as such."""
    found: list[tuple[Call, list[Any]]] = []
    for call in _calls(tally.entry):
        try:
            call.trace()
        except Exception as error:
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            tally.add(SOURCE, "untraced", f"{type(error).__name__}: {first[:160]}")
            continue
        try:
            found.append((call, eager(call, tally.entry)))
        except Exception:  # eager has no such gradient
            continue
    if not found:
        return []
    group = Group(tally, tuple(c for c, _ in found), tuple(w for _, w in found), (SOURCE,) * len(found))
    return group.alone() if tally.entry.random else [group]


def _calls(entry: Entry) -> list[GradientCall]:
    """Calls spread evenly over torch's samples that want gradients. The same ones every time."""
    torch.manual_seed(zlib.crc32(f"{entry.name} gradients".encode()))
    given = itertools.islice(entry.op.sample_inputs("cpu", torch.float32, requires_grad=True), _LOOKED_AT)
    found = []
    for sample in given:
        tensors = [x for x in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if torch.is_tensor(x)]
        if sum(x.numel() for x in tensors) > _LARGEST:
            continue
        try:
            found.append(GradientCall(entry, sample))
        except Exception:  # no gradient, or torch itself refuses the sample
            continue
    if len(found) > SAMPLES:
        found = [found[round(i * (len(found) - 1) / (SAMPLES - 1))] for i in range(SAMPLES)]
    return found
