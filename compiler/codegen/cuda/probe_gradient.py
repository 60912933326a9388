"""The gradient of attention of given sizes, as the nodes of probe.py."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Acc, Call, Const, Expr, Load
from ...ir.index import ONE, ZERO, Index, IndexLike, Var, as_index, of, product
from ...ir.nodes import Origin
from ...ir.structured import AttentionGradient


@dataclass(frozen=True)
class GradientProbe:
    """A node, its buffers by name, and the shapes of these."""

    node: AttentionGradient
    buffers: dict[str, Buffer]
    shapes: dict[str, tuple[Index, ...]]


def gradient_probe(
    batch: IndexLike,
    heads: int,
    queries: IndexLike,
    keys: IndexLike,
    head: int,
    dtype: str,
    *,
    kv_heads: int = 0,
    causal: bool = False,
    mask: bool = False,
    dropout: bool = False,
) -> GradientProbe:
    """of_q, of_k, of_v [batch, rows, heads, head] from q, grad, k, v of this order and log, inner [batch, heads,
    queries]. mask: of bools [batch, keys]. dropout: of bools `kept` [batch, heads, queries, keys]."""
    groups, b, m, n = kv_heads or heads, as_index(batch), as_index(queries), as_index(keys)
    shapes: dict[str, tuple[Index, ...]] = {}
    buffers: dict[str, Buffer] = {}

    def buffer(name: str, *shape: IndexLike, dtype: str = dtype) -> Buffer:
        shapes[name] = tuple(map(as_index, shape))
        buffers[name] = Buffer(name, dtype, product(shapes[name]), "temp")
        return buffers[name]

    def rows(name: str, count: Index, own: int) -> Operand:
        strides = (count * (own * head), as_index(head), as_index(own * head))
        return Operand(buffer(name, b, count, own, head), ZERO, strides)

    def numbers(name: str) -> Operand:
        return Operand(buffer(name, b, heads, m, dtype="f32"), ZERO, (m * heads, m, ONE))

    dims = tuple(Var(name, e) for name, e in zip("bhmd", (b, as_index(heads), m, as_index(head)), strict=True))
    key = Var("key", n)
    score = factor = None
    if mask:
        seen = Load(buffer("mask", b, n, dtype="bool"), of(dims[0]) * n + of(key))
        score = _where(seen, Acc("score", "f32"), float("-inf"))
    if dropout:
        place = ((of(dims[0]) * heads + of(dims[1])) * m + of(dims[2])) * n + of(key)
        factor = _where(Load(buffer("kept", b, heads, m, n, dtype="bool"), place), Const(1.25, "f32"), 0.0)
    node = AttentionGradient(
        dims, (), Origin(("mycc.attention_gradient",), ("model.py:1",)), rows("q", m, heads), rows("k", n, groups),
        rows("v", n, groups), rows("grad", m, heads), numbers("log"), numbers("inner"), rows("of_q", m, heads),
        rows("of_k", n, groups), rows("of_v", n, groups), as_index(groups), n, as_index(head), head**-0.5, causal, key,
        score, factor,
    )  # fmt: skip
    return GradientProbe(node, buffers, shapes)


def _where(condition: Expr, value: Expr, other: float) -> Expr:
    return Call("where", (condition, value, Const(other, "f32")), "f32")
