"""Overloads whose definition follows from their schema: of lists of tensors, and of numbers beside tensors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from mycc.compiler.graph.decompose.derived_definitions import derived_definition
from mycc.compiler.model.operators.kept import KEPT
from torch._ops import OpOverload

from ..helpers.overload_calls import Call, same_as_eager

CHUNK = 48  # calls of a graph


def functional_overloads() -> Iterator[OpOverload]:
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        name, _, overload = full.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, name, None), overload or "default", None) if "aten::" in full else None
        if op is not None and not op._schema.is_mutable and not overload.endswith("out"):
            yield op


OF_LISTS = [
    op
    for op in functional_overloads()
    if op._opname.startswith("_foreach_") and hasattr(torch, op._opname)  # the others are no functions of torch
]
OF_NUMBERS = [
    op
    for op in functional_overloads()
    if not op._opname.startswith("_foreach_")
    and [str(r.type) for r in op._schema.returns] == ["Tensor"]
    and any(str(a.type) == "number" for a in op._schema.arguments)
    and derived_definition(op) is not None
]


def test_there_are_some() -> None:
    assert len(OF_LISTS) > 60
    assert {"aten.xlogy.Scalar_Other", "aten.special_xlog1py.self_scalar", "aten.mul.Scalar"} <= {*map(str, OF_NUMBERS)}
    assert "mul" in KEPT  # what the lowering takes whole is not defined anew


def test_some_lists() -> None:
    same_as_eager([Call(op) for op in OF_LISTS[::9]])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(OF_LISTS), CHUNK))
def test_lists(first: int) -> None:
    same_as_eager([Call(op) for op in OF_LISTS[first : first + CHUNK]])


def test_numbers_that_torch_defines_otherwise() -> None:
    same_as_eager([Call(op) for op in OF_NUMBERS if op._opname in ("xlogy", "special_xlogy", "special_xlog1py")])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(OF_NUMBERS), CHUNK))
def test_numbers(first: int) -> None:
    same_as_eager([Call(op) for op in OF_NUMBERS[first : first + CHUNK]])
