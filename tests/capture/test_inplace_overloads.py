"""In-place overloads of aten become the functional overloads with the same arguments, and leave eager's values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.inplace import functional_overload
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.verify import eager
from torch._ops import OpOverload

from ..helpers.overload_calls import Call, same_as_eager

aten = torch.ops.aten

#: what changes no values, or not those of a strided tensor
NOT_VALUES = """
as_strided_ set_ resize_ resize_as_ resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_ requires_grad_ rename_
detach_ copy_sparse_to_sparse_
""".split()
#: draws of random numbers, which the tests of random numbers compare
RANDOM = """
bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_ dropout_ alpha_dropout_ feature_dropout_
feature_alpha_dropout_ rrelu_ rrelu_with_noise_
""".split()


def overloads() -> Iterator[OpOverload]:
    """Those that write to their first argument, a tensor or several, and to nothing else."""
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        if not full.startswith("aten::"):
            continue
        name, _, overload = full.removeprefix("aten::").partition(".")
        own = name.startswith("_") and not name.startswith(("__i", "_foreach_"))  # torch's own, not a model's
        if own or not name.endswith("_") or name.endswith("__") != name.startswith("__i") or name in NOT_VALUES:
            continue
        op = getattr(getattr(aten, name, None), overload or "default", None)
        if op is None:
            continue
        written = [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if written == [op._schema.arguments[0].name]:
            yield op


ALL = list(overloads())


def test_every_overload_has_a_form() -> None:
    for op in ALL:
        if op._opname in RANDOM:
            continue
        form = functional_overload(op)
        assert form is not None or op is aten.fill_diagonal_.default, op
        names = {a.name for a in op._schema.arguments}
        assert form is None or names == {a.name for a in form._schema.arguments}, op


TRIED = [op for op in ALL if op._opname not in RANDOM]
CHUNK = 48  # calls of a graph


def is_odd(op: OpOverload) -> bool:
    """Whether the functional form is not the overload of the same name."""
    form = functional_overload(op)
    return form is None or form._overloadname != op._overloadname


ODD = [op for op in TRIED if is_odd(op) and op is not aten.fill_diagonal_.default]
LISTS = [op for op in TRIED if op._opname.startswith("_foreach_")]


def test_leaves_the_values_of_eager() -> None:
    same_as_eager([Call(op) for op in [*ODD, *LISTS[::9]]])


def test_what_torch_rewrites() -> None:
    same_as_eager([Call(aten.fill_diagonal_.default)])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(TRIED), CHUNK))
def test_every_overload(first: int) -> None:
    same_as_eager([Call(op) for op in TRIED[first : first + CHUNK] if op is not aten.fill_diagonal_.default])


def test_lists_that_share_memory() -> None:
    """One tensor after the other, as torch does it on a CPU."""

    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = x.clone(), y.clone()
        torch._foreach_add_([a, a, b[0], b], [b, a, b[1], b])
        torch._foreach_addcmul_([a, b], [a, a], [b, b], torch.tensor([2.0, 3.0]))
        return a, b

    inputs = (torch.rand(3, 3), torch.rand(3, 3))
    graph = capture(model, inputs)
    for got, want in zip(eager(run_graph_passes(graph), inputs), model(*inputs), strict=True):
        torch.testing.assert_close(got, want)


def test_comparisons_keep_the_type() -> None:
    same_as_eager([Call(op) for op in (aten.eq_.Tensor, aten.lt_.Scalar, aten.logical_and_.default)])


class Smoothed(torch.nn.Module):
    """Operands that broadcast along a dynamic size, in a body too."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, z, w = x * 2, x + 1, x - 1
        y.lerp_(x.amax(), 0.5)
        z.lerp_(x.amax(0), x.amax(1, keepdim=True))
        w.addcdiv_(x.sum(1, keepdim=True), x.exp(), value=2)
        inside = torch.cond(x.sum() > 0, lambda x: x.clone().lerp_(x.mean(0), 0.25), lambda x: x * 3, (x,))
        return y, z, w, inside


def test_operands_broadcast_along_a_dynamic_size(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({0: rows},)
    model = mycc.load(mycc.compile(Smoothed(), (torch.randn(4, 5),), dynamic_shapes=shapes, out=tmp_path / "m.pkg"))
    for n in (2, 9):
        x = torch.randn(n, 5, generator=torch.Generator().manual_seed(n))
        for inputs in (x.abs(), -x.abs()):
            for found, wanted in zip(model(inputs), Smoothed()(inputs), strict=True):
                torch.testing.assert_close(found, wanted)
