"""What each kernel of a schedule is, does and moves, as rows for the manifest (sizes as formulas over the symbols)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..ir.expr import Acc, Call, Expr, Load
from ..ir.index import Index, as_index, product
from ..ir.nodes import Map, Nest, Node, Reduce, Scan, Scatter
from ..ir.plans.kernel import Plan
from ..ir.plans.text import plan_row
from ..ir.program import AnyNode, Assert
from ..ir.routines import Routine
from ..ir.structured import Attention, AttentionGradient, Conv, ConvChain, Gemm
from ..machine.cpu_loops import OPERATOR_COST
from ..tune.choices.keys import kernel_key
from .cost.traffic import traffic
from .schedule import Schedule


def kernel_rows(schedule: Schedule, symbols: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row per kernel, in order of execution; `symbols` are the names of the compiled functions."""
    return [
        _row(node, plan, name) for node, plan, name in zip(schedule.program.nodes, schedule.plans, symbols, strict=True)
    ]


def _row(node: AnyNode, plan: Plan | None, name: str) -> dict[str, Any]:
    moved, decided = traffic(node), plan_row(plan)
    return {
        "name": name,
        "kind": type(node).__name__.lower(),
        "key": kernel_key(node) or "",
        "ops": list(node.origin.ops),
        "sources": list(node.origin.lines),
        "flops": str(flops(node)),
        "bytes": str(moved.total),
        "writes": str(moved.written),
        "weights": str(moved.weights),
        "buffers": [f"{b.kind}:{b.name}" for b in (*node.reads(), *node.writes())],
        **({"plan": decided} if decided else {}),
    }


def flops(node: Node) -> Index:
    """Multiplications and additions of a matrix kernel's product; of other kernels its operators, at estimated cost."""
    match node:
        case Gemm():
            return node.extent * node.k * (2 * (1 + len(node.also)))
        case Conv():
            taps = math.prod(node.window.kernel)
            inner = node.in_shape[-1] // as_index(node.window.groups)
            return node.extent * inner * (2 * taps)
        case Attention() | AttentionGradient():
            batch, heads, queries, size = (v.extent for v in node.dims)
            scores = queries * node.keys
            if node.causal and queries == node.keys:  # half of them are not computed
                scores = queries * (queries + 1) // 2
            products = node.head_size + size
            if isinstance(node, AttentionGradient):  # the scores again, and the gradient of each side of both products
                products = node.head_size * 3 + size * 2
            return batch * heads * scores * products * 2
        case ConvChain():
            return sum((flops(link) for link in node.links), as_index(0))
        case Nest():
            return sum((flops(stage) for stage in node.stages), as_index(0))
        case Reduce():
            reduced = _operators(f.value for f in node.reductions) + len(node.reductions)
            turns = product(v.extent for v in node.rdims)
            return node.extent * (turns * reduced + _operators(s.value for s in node.stores))
        case Map():
            return _pointwise(node, node.extent)
        case Scan():
            return _pointwise(node, node.extent * node.step.extent)
        case Scatter():
            return _pointwise(node, product(v.extent for v in node.udims))
        case Routine():
            return node.count * product(node.sizes)
        case Assert():
            return as_index(0)
    raise TypeError(type(node).__name__)


def _pointwise(node: Node, elements: Index) -> Index:
    return elements * _operators(node.expressions())


def _operators(expressions: Iterable[Expr]) -> int:
    """The cost of the operators on elements; what tells places inside from those outside is none."""
    calls = (x for e in expressions for x in e.walk() if isinstance(x, Call) and x.op != "cast")
    return sum(OPERATOR_COST.get(x.op, 1) for x in calls if not _tells_places(x))


def _tells_places(x: Call) -> bool:
    condition = x.args[0] if x.op == "where" else x
    return condition.dtype == "bool" and not any(isinstance(e, Load | Acc) for e in condition.walk())
