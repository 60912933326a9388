"""The option graph.eager_roundings on GPUs, whose kernels pass on float32 values between operators of 16 bits:

    h[i] = to_bf16(add(x[i], y[i]))      ->      h[i] = to_bf16(round_bf16(add(x[i], y[i])))

What fuses then reads the rounded value.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import Call
from ...ir.nodes import Node, Store
from ...ir.program import AnyNode, Program
from ..pointwise.operands import rounding


def with_eager_roundings(program: Program) -> Program:
    """The program with a rounding in front of each conversion to 16 bits that ends an operator."""
    return program.with_nodes(tuple(_rounded(node) for node in program.nodes))


def _rounded(node: AnyNode) -> AnyNode:
    if not isinstance(node, Node) or not node.stores:
        return node
    return replace(node, stores=tuple(_rounded_store(s) for s in node.stores))


def _rounded_store(s: Store) -> Store:
    e = s.value
    narrow = s.buffer.dtype in ("f16", "bf16") and isinstance(e, Call) and e.op == "cast" and e.dtype == s.buffer.dtype
    if not narrow or e.args[0].dtype != "f32" or not isinstance(e.args[0], Call):  # type: ignore[attr-defined]
        return s
    return replace(s, value=replace(e, args=(rounding(e.dtype)(e.args[0]),)))  # type: ignore[attr-defined, type-var]
