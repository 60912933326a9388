"""Views of the structured kernels: GEMM, convolution, attention. Their loops are renamed to (z, m, n)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.expr import substitute
from ..ir.index import ONE, ZERO, Atom, Index, Var, as_index, of, product
from ..ir.nodes import Attention, Conv, Gemm, Operand, Store
from .emit import Emitter
from .loop_views import LONGEST_VECTOR
from .scope import Scope
from .views import AttentionKernel, Epilogue, GemmKernel, Lanes

Fields = tuple[tuple[str, str], ...]


def gemm_view(node: Gemm, comment: tuple[str, ...]) -> GemmKernel:
    scope = Scope(frozenset(node.writes()))
    text = Emitter(scope, None)
    *batch, m, n = node.dims
    epilogue = _epilogue(scope, node.stores, batch, [m], n, node.acc.name)
    lead = [v.extent for v in batch]
    strides = node.a.strides
    sizes = {"m": m.extent, "n": n.extent, "k": node.k}
    if node.packed:
        fields = _fields(text, {"batch": product(lead), **sizes})
        fields += (("a", _address(scope, text, node.a)),)
        fields += _fields(text, {"a_batch": strides[0] if batch else ZERO, "a_row": strides[-2]})
        fields += (("b", _address(scope, text, node.b)), ("b_batch", "0"))
        return GemmKernel("gemm.cpp.j2", comment, scope.params(), fields, epilogue)
    pad = [ONE] * (2 - len(lead)) + lead
    zeros = [ZERO] * (2 - len(lead))
    a = [*zeros, *strides[: len(lead)]]
    b = [*zeros, *node.b.strides[: len(lead)]]
    fields = _fields(text, {"batch0": pad[0], "batch1": pad[1], **sizes})
    fields += (("a", _address(scope, text, node.a)),)
    fields += _fields(text, {"a_batch0": a[0], "a_batch1": a[1], "a_row": strides[-2]})
    fields += (("b", _address(scope, text, node.b)),)
    b_k, b_n = _unit_strides(node)
    fields += _fields(text, {"b_batch0": b[0], "b_batch1": b[1], "b_k": b_k, "b_n": b_n})
    return GemmKernel("gemm_free.cpp.j2", comment, scope.params(), fields, epilogue)


def _unit_strides(node: Gemm) -> tuple[Index, Index]:
    """Strides of b along k and n; a dimension of size 1 counts as dense."""
    b_k, b_n = node.b.strides[-2:]
    if ONE in (b_k, b_n):
        return b_k, b_n
    return (ONE, b_n) if node.k == ONE else (b_k, ONE)


def conv_view(node: Conv, comment: tuple[str, ...]) -> GemmKernel:
    scope = Scope(frozenset(node.writes()))
    text = Emitter(scope, None)
    n, h, w, c = node.dims
    epilogue = _epilogue(scope, node.stores, [], [n, h, w], c, node.acc.name)
    batch, in_h, in_w, in_c = node.in_shape
    win = node.window
    fields = _fields(
        text,
        {
            **{"batch": batch, "in_h": in_h, "in_w": in_w, "in_c": in_c},
            **{"out_h": h.extent, "out_w": w.extent, "out_c": c.extent},
            **{"kernel_h": win.kernel[0], "kernel_w": win.kernel[1]},
            **{"stride_h": win.stride[0], "stride_w": win.stride[1], "pad_h": win.pad[0], "pad_w": win.pad[1]},
            **{"dilation_h": win.dilation[0], "dilation_w": win.dilation[1], "groups": win.groups},
        },
    )
    fields += (("x", _address(scope, text, node.x)),)
    fields += _fields(text, dict(zip(("x_batch", "x_h", "x_w"), node.x.strides, strict=True)))
    fields += (("w", _address(scope, text, Operand(node.w, node.w_offset, ()))),)
    template = "conv_depthwise.cpp.j2" if node.depthwise else "conv.cpp.j2"
    return GemmKernel(template, comment, scope.params(), fields, epilogue)


def attention_view(node: Attention, comment: tuple[str, ...]) -> AttentionKernel:
    scope = Scope(frozenset(node.writes()))
    text = Emitter(scope, None)
    b, h, m, d = node.dims
    score = _score(scope, node) if node.score is not None else None
    fields = _fields(
        text,
        {
            **{"batch": b.extent, "heads": h.extent, "kv_heads": node.kv_heads, "queries": m.extent},
            **{"keys": node.keys, "head_size": node.head_size, "value_size": d.extent},
        },
    )
    operands = {"q": node.q, "k": node.k, "v": node.v, "out": node.out}
    fields += tuple((name, _address(scope, text, o)) for name, o in operands.items())
    for name, o in operands.items():
        fields += _fields(text, dict(zip((f"{name}_batch", f"{name}_head", f"{name}_row"), o.strides, strict=True)))
    fields += (("scale", f"{node.scale!r}f"), ("causal", "true" if node.causal else "false"), ("causal_offset", "0"))
    return AttentionKernel("attention.cpp.j2", comment, scope.params(), fields, score)


def _fields(text: Emitter, values: Mapping[str, Index | int]) -> Fields:
    return tuple((name, text.index(as_index(value))) for name, value in values.items())


def _address(scope: Scope, text: Emitter, o: Operand) -> str:
    name, offset = scope.buffer(o.buffer), text.index(o.offset)
    return name if offset == "0" else f"{name} + {offset}"


# epilogues -----------------------------------------------------------------------------------------------------------
def _epilogue(
    scope: Scope, stores: Sequence[Store], batch: Sequence[Var], rows: Sequence[Var], n: Var, acc: str
) -> Epilogue:
    """The stores in terms of z (all batch loops), m (all row loops) and the vector loop n."""
    z, m = Var("z", product(v.extent for v in batch)), Var("m", product(v.extent for v in rows))
    values: dict[Atom, Index] = {**_digits(z, batch), **_digits(m, rows)}
    column = Var("column", n.extent)
    values[n] = of(column)
    moved = [Store(s.buffer, s.index.substitute(values), substitute(s.value, values)) for s in stores]
    for var, name in ((z, "z"), (m, "m"), (column, "column")):
        scope.loop(var, name)
    return Epilogue((), _segment(scope, moved, column, {acc: "acc"}))


def _digits(flat: Var, loops: Sequence[Var]) -> dict[Atom, Index]:
    """Each loop as a digit of one flat loop."""
    values: dict[Atom, Index] = {}
    step = ONE
    for i, v in reversed(list(enumerate(loops))):
        quotient = of(flat) // step
        values[v] = quotient % v.extent if i else quotient
        step = step * v.extent
    return values


def _segment(scope: Scope, stores: Sequence[Store], column: Var, accs: dict[str, str]) -> Lanes:
    names = {name: f"{text}_" for name, text in accs.items()}
    emitters = [Emitter(scope, column, p, names, frozenset(accs)) for p in (False, True)]
    for e in emitters:
        e.count_uses(s.value for s in stores)
        for s in stores:
            e.store(s)
    full, part = emitters
    whole = column.extent.constant is not None and column.extent.constant % LONGEST_VECTOR == 0
    return Lanes("column", full.index(column.extent), tuple(full.pre), tuple(full.body), tuple(part.body), whole)


def _score(scope: Scope, node: Attention) -> Epilogue:
    assert node.score is not None
    b, h, m, _ = node.dims
    for var, name in ((b, "b"), (h, "h"), (m, "m"), (node.key, "column")):
        scope.loop(var, name)
    lines: list[tuple[str, ...]] = []
    pre: tuple[str, ...] = ()
    for part in (False, True):
        e = Emitter(scope, node.key, part, {"score": "acc_"}, frozenset({"score"}))
        e.count_uses([node.score])
        value = e.lanes(node.score)
        store = f"store_part(s + i, {value}, count);" if part else f"store(s + i, {value});"
        lines.append((*e.body, store))
        pre = tuple(e.pre)
    return Epilogue((), Lanes("column", "", pre, lines[0], lines[1], False))
