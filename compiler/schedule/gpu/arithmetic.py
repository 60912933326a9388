"""What the arithmetic of a kernel may do."""

from __future__ import annotations

from ...ir.expr import Call
from ...ir.nodes import Node
from ...ir.program import AnyNode

#: LLVM makes arithmetic of 16 bits of what lies between two of them, and of its products and sums FMAs
ROUNDINGS = ("round_f16", "round_bf16")


def may_fuse(node: AnyNode) -> bool:
    """Whether a product and a sum may be rounded once: not where values are rounded to 16 bits between the steps, which
    an FMA of 16-bit numbers would skip."""
    if not isinstance(node, Node):
        return True
    return not any(isinstance(e, Call) and e.op in ROUNDINGS for own in node.expressions() for e in own.walk())
