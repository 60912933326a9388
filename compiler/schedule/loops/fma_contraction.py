"""FMA contraction: a product that only one sum reads is added without an intermediate rounding:

    add(mul(a, b), c)  ->  fma(a, b, c)         sub(mul(a, b), c)  ->  fma(a, b, neg(c))
    add(c, mul(a, b))  ->  fma(a, b, c)         sub(c, mul(a, b))  ->  fma(neg(a), b, c)

Of two products the first one is fused. This pass alone decides, before code is printed, so that vectors, their tails
and scalars round alike under every compiler; the compilers must not contract by themselves (build/compile.py). A
reduction that sums products uses FMA too (codegen/cpu/reduction_views.py). On GPUs, Triton's compiler decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...ir.expr import (
    Call,
    Const,
    Expr,
    IndexValue,
    Load,
    uses,
)
from ...ir.nodes import Nest
from ...ir.program import AnyNode
from ...ir.rewrite import map_expressions
from ...ir.structured import ConvChain

FUSED = ("f32", "f64")


def with_fma(node: AnyNode) -> AnyNode:
    """The node, its expressions with fused products; those of a nest are counted in each stage, as they are printed."""
    if isinstance(node, Nest):
        return replace(node, stages=tuple(with_fma(stage) for stage in node.stages))  # type: ignore[misc]
    if isinstance(node, ConvChain):
        links = tuple(with_fma(link) for link in node.links)
        return replace(node, links=links, stores=links[-1].stores)  # type: ignore[arg-type]
    fusion = _Fusion(uses(node.expressions()))
    return map_expressions(node, fusion.of)


def fma_factors(e: Expr, uses: Counter[Expr]) -> tuple[Expr, Expr] | None:
    """The factors of a product that is read once."""
    if isinstance(e, Call) and e.op == "mul" and e.dtype in FUSED and uses[e] <= 1:
        return e.args[0], e.args[1]
    return None


class _Fusion:
    """Rewrites the expressions of one node. uses: how often each of them is read."""

    def __init__(self, uses: Counter[Expr]) -> None:
        self.uses = uses
        self.done: dict[Expr, Expr] = {}

    def of(self, e: Expr) -> Expr:
        if e not in self.done:
            self.done[e] = self._rebuilt(e)
        return self.done[e]

    def _rebuilt(self, e: Expr) -> Expr:
        match e:
            case Call():
                return self._sum(e) or Call(e.op, tuple(map(self.of, e.args)), e.dtype)
            case Load() if e.children:  # a place and what is made of it have to agree
                return Load(e.buffer, e.index.substitute({}, self._of_any))
            case IndexValue() if e.children:
                return IndexValue(e.index.substitute({}, self._of_any))
        return e

    def _of_any(self, value: object) -> object:
        assert isinstance(value, Expr)
        return self.of(value)

    def _sum(self, e: Call) -> Expr | None:
        """A sum or difference with one product in it fused; None for all else."""
        if e.op not in ("add", "sub"):
            return None
        for product, other in (e.args, e.args[::-1]):
            factors = fma_factors(product, self.uses)
            if factors is not None and product.dtype == e.dtype:
                a, b, c = map(self.of, (*factors, other))
                if e.op == "sub" and product is e.args[0]:
                    c = _negative(c)
                elif e.op == "sub":
                    a, b = (a, _negative(b)) if isinstance(b, Const) else (_negative(a), b)
                return Call("fma", (a, b, c), e.dtype)
        return None


def _negative(e: Expr) -> Expr:
    return Const(-e.value, e.dtype) if isinstance(e, Const) else Call("neg", (e,), e.dtype)
