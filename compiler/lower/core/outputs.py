"""The outputs of a program: a temporary that already is an output as it has to be written becomes one; else a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...ir.buffers import Buffer, Operand
from ...ir.expr import Expr, Load, rewrite
from ...ir.index import product
from ...ir.nodes import Node, Reduce, Scan, Scatter, Store
from ...ir.program import AnyNode, Assert, Choose, Found, Repeat
from ...ir.routines import Routine
from ...ir.structured import Attention, AttentionGradient, Conv, Gemm
from .builder import Builder
from .in_place import settled, store_over
from .stored_there import stored_there
from .tensor import Tensor, is_dense


def bind_outputs(
    builder: Builder, tensors: Sequence[Tensor], targets: Sequence[tuple[Buffer, Tensor]] = ()
) -> tuple[Buffer, ...]:
    """Makes every output a buffer of its own, row-major; returns them in order.

    targets: memory and its value after the call, stored there when the outputs are done.
    """
    renamed, targets = stored_there(builder, targets, tensors)
    targets = settled(builder, targets)
    outputs: list[Buffer] = []
    for slot, t in enumerate(tensors):
        source = t.strided.buffer if t.strided is not None else None
        if source is not None and source.kind == "temp" and is_dense(t) and source not in renamed:
            target = Buffer(f"out{slot}", t.dtype, source.size, "output", slot)
            renamed[source] = target
        else:
            builder.hint = "copy"
            target = Buffer(f"out{slot}", t.dtype, product(t.shape), "output", slot)
            copy = builder.map(t.shape, t.dtype, t.at, tuple(range(t.rank)))
            assert copy.strided is not None
            renamed[copy.strided.buffer] = target
        outputs.append(target)
    for root, t in targets:
        store_over(builder, root, t)
    builder.nodes[:] = [rename_buffers(n, renamed) for n in builder.nodes]
    builder.defines[:] = [replace(d, buffer=renamed.get(d.buffer, d.buffer)) for d in builder.defines]
    return tuple(outputs)


def rename_buffers(node: AnyNode, names: dict[Buffer, Buffer]) -> AnyNode:
    """The node with buffers replaced, wherever they are read or written."""
    if not any(b in names for b in (*node.reads(), *node.writes())):
        return node

    def expr(e: Expr) -> Expr:
        return rewrite(
            e, lambda x: Load(names[x.buffer], x.index) if isinstance(x, Load) and x.buffer in names else None
        )

    def operand(o: Operand) -> Operand:
        return replace(o, buffer=names.get(o.buffer, o.buffer))

    stores = tuple(Store(names.get(s.buffer, s.buffer), s.index, expr(s.value)) for s in node.stores)
    changed: Node = replace(node, stores=stores)
    match changed:
        case Reduce():
            reductions = tuple(replace(f, value=expr(f.value)) for f in changed.reductions)
            return replace(changed, reductions=reductions)
        case Gemm():
            return replace(changed, a=operand(changed.a), b=operand(changed.b))
        case Conv():
            return replace(changed, x=operand(changed.x), w=names.get(changed.w, changed.w))
        case Attention():
            score, dropout = (None if e is None else expr(e) for e in (changed.score, changed.dropout))
            parts: dict[str, Any] = {name: operand(getattr(changed, name)) for name in ("q", "k", "v", "out")}
            sides = {name: getattr(changed, name) for name in ("logsumexp", "top", "sink")}
            parts |= {name: operand(side) for name, side in sides.items() if side is not None}
            return replace(changed, score=score, dropout=dropout, **parts)
        case AttentionGradient():
            score, dropout = (None if e is None else expr(e) for e in (changed.score, changed.dropout))
            own = ("q", "k", "v", "grad", "logsumexp", "inner", "of_q", "of_k", "of_v")
            parts = {name: operand(getattr(changed, name)) for name in own}
            parts |= {"top": operand(changed.top)} if changed.top is not None else {}
            return replace(changed, score=score, dropout=dropout, **parts)
        case Scan():
            carries = (replace(c, start=expr(c.start), next=expr(c.next)) for c in changed.carries)
            return replace(changed, carries=tuple(carries))
        case Scatter():
            return replace(changed, updates=tuple(_renamed(u, names, expr) for u in changed.updates))
        case Found():
            return replace(changed, buffer=names.get(changed.buffer, changed.buffer))
        case Assert():
            return replace(changed, condition=names.get(changed.condition, changed.condition))
        case Choose():
            then, other = (tuple(rename_buffers(n, names) for n in block) for block in changed.blocks)
            results = tuple(names.get(b, b) for b in changed.results)
            return replace(changed, flag=names.get(changed.flag, changed.flag), then=then, other=other, results=results)
        case Repeat():
            test, body = (tuple(rename_buffers(n, names) for n in block) for block in changed.blocks)
            return replace(changed, test=test, body=body)
        case Routine():
            sides = {"inputs": changed.inputs, "outputs": changed.outputs}
            renamed: dict[str, Any] = {
                name: tuple(replace(b, buffer=names.get(b.buffer, b.buffer)) for b in side)
                for name, side in sides.items()
            }
            return replace(changed, **renamed)
    return changed  # type: ignore[return-value]


def _renamed(update: Store, names: dict[Buffer, Buffer], expr: Callable[[Expr], Expr]) -> Store:
    def visit(value: object) -> object:
        assert isinstance(value, Expr)
        return expr(value)

    place = update.index.substitute({}, visit)
    return Store(names.get(update.buffer, update.buffer), place, expr(update.value))
