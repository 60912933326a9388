"""Views of the structured kernels: GEMM, convolution, attention. Their loops are renamed to (z, m, n)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...ir.buffers import Operand
from ...ir.dtypes import DTYPES
from ...ir.index import (
    ONE,
    ZERO,
    Index,
    Var,
    as_index,
    product,
)
from ...ir.nodes import Store
from ...ir.plans.matrix import EpiloguePlan, MatrixPlan, Packing
from ...ir.rewrite import epilogues
from ...ir.rewrite.epilogues import gemm_epilogue
from ...ir.structured import WINOGRAD_FORMS, Attention, AttentionGradient, Conv, Gemm, Patches
from ...machine.cpu import WIDEST_LANES
from ...machine.cpu_products import CONVOLUTIONS, MATRIX_TILES
from .emit import Emitter
from .epilogue_terms import added, lifted_prefetches, results
from .lift import Lifted
from .prefetch import prefetch_lines
from .scope import Param, Scope
from .views.loops import Lanes
from .views.structured import AttentionKernel, Epilogue, GemmKernel

Fields = tuple[tuple[str, str], ...]
#: geometry that the convolution templates specialise on: stays a number in the kernel
GEOMETRY = (*(f"{name}_{a}" for name in ("kernel", "stride", "pad", "dilation") for a in "dhw"), "groups")

#: argument struct of a product by the type of its packed weights
GEMM_ARGUMENTS = {"f32": "GemmArgs", "bf16": "GemmArgsBf16", "f16": "GemmArgsF16"}
#: argument struct of an attention, and of its gradient, by the type of its operands
ATTENTION_ARGUMENTS = {"f32": "AttentionArgs", "bf16": "AttentionArgsBf16", "f16": "AttentionArgsF16"}
ATTENTION_GRADIENT_ARGUMENTS = {
    dtype: name.replace("Attention", "AttentionGradient") for dtype, name in ATTENTION_ARGUMENTS.items()
}


def gemm_view(node: Gemm, plan: MatrixPlan, weight_bytes: Index = ZERO) -> GemmKernel:
    """weight_bytes: of all products of a run; 0: not known."""
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = FieldPrinter(scope)
    *batch, m, n = node.dims
    others = tuple(acc.name for _, acc in node.also)
    epilogue = _epilogue(text, gemm_epilogue(node), node.acc.name, plan.epilogue, others=others)
    lead = [v.extent for v in batch]
    strides = node.a.strides
    sizes = {"m": m.extent, "n": n.extent, "k": node.k}
    if node.quantised is not None:
        return _quantised_view(node, plan, text, epilogue)
    if plan.packing is Packing.COMPILE_TIME:
        fields = text.sizes({"batch": product(lead), **sizes}) + text.address("a", node.a)
        fields += text.sizes({"a_batch": strides[0] if batch else ZERO, "a_row": strides[-2]})
        b_batch, *b_panel = node.b.strides or (ZERO,)
        fields += text.address("b", node.b) + text.sizes({"b_batch": b_batch})
        if b_panel:  # parts of panels
            fields += text.sizes({"b_panel": b_panel[0]})
        if (tile_rows := _tile_rows(plan)) != ZERO:
            fields += text.sizes({"tile_rows": tile_rows})
        if plan.streamed:
            fields += text.sizes({"weight_bytes": weight_bytes})
        arguments = GEMM_ARGUMENTS[node.b.buffer.dtype]
        function = plan.algorithm.replace("-", "_")
        return GemmKernel("gemm.cpp.j2", text.params(), fields, epilogue, function=function, arguments=arguments)
    pad = [ONE] * (2 - len(lead)) + lead
    zeros = [ZERO] * (2 - len(lead))
    a = [*zeros, *strides[: len(lead)]]
    b = [*zeros, *node.b.strides[: len(lead)]]
    fields = text.sizes({"batch0": pad[0], "batch1": pad[1], **sizes}) + text.address("a", node.a)
    fields += text.sizes({"a_batch0": a[0], "a_batch1": a[1], "a_row": strides[-2]}) + text.address("b", node.b)
    b_k, b_n = node.unit_strides
    fields += text.sizes({"b_batch0": b[0], "b_batch1": b[1], "b_k": b_k, "b_n": b_n})
    return GemmKernel("gemm_unpacked.cpp.j2", text.params(), fields, epilogue)


def _quantised_view(node: Gemm, plan: MatrixPlan, text: FieldPrinter, epilogue: Epilogue) -> GemmKernel:
    """A product of integer weights, whose scales may be a part of it."""
    how, (m, n) = node.quantised, node.dims
    assert how is not None
    if node.acc.dtype == "i32":
        epilogue = replace(epilogue, sum_type="int32_t", sum_vector="vi32")
    types = [DTYPES[b.dtype].cpp if b is not None else "none" for b in (how.scales, how.zeros)]
    fields = text.sizes({"m": m.extent, "n": n.extent, "k": node.k}) + text.address("a", node.a)
    if how.patches is None:
        fields += text.sizes({"a_row": node.a.strides[0]})
    else:
        fields += _patch_fields(text, how.patches)
    (_, address), *_ = text.address("b", node.b)
    fields += (("b", f"(const uint8_t *){address}"), *text.sizes({"group": how.group}))
    for name, buffer in (("scales", how.scales), ("zeros", how.zeros)):
        if buffer is not None:
            fields += text.address(name, Operand(buffer, ZERO, ()))
    if plan.algorithm == "gemm-integer":
        fields += text.sizes({"tile_rows": _tile_rows(plan)})
    values = "kFloat8" if how.float8 else str(how.bits)
    arguments = f"QuantisedArgs<{', '.join((DTYPES[node.a_dtype].cpp, values, *types))}>"
    function = plan.algorithm.replace("-", "_")
    return GemmKernel("gemm_quantised.cpp.j2", text.params(), fields, epilogue, function=function, arguments=arguments)


def _tile_rows(plan: MatrixPlan) -> Index:
    """Rows from which on the level with matrix tiles uses them; 0: never."""
    return next((as_index(tile.from_rows) for tile in plan.tiles if tile.level == MATRIX_TILES.level), ZERO)


def _patch_fields(text: FieldPrinter, patches: Patches) -> Fields:
    names = ("plane", "line", "pixel")[-len(patches.taps.extents) :]
    extents = ("planes", "lines", "width")[-len(names) :]
    sizes: dict[str, Index] = dict(zip(extents, patches.rows.extents[1:], strict=True))
    sizes |= zip(("image_step", *(f"{name}_step" for name in names)), patches.rows.strides, strict=True)
    axes = ("z", "y", "x")[-len(names) :]
    sizes |= zip((f"taps_{axis}" for axis in axes), patches.taps.extents, strict=True)
    sizes |= zip((f"tap_{axis}_step" for axis in axes), patches.taps.strides, strict=True)
    sizes["run"] = as_index(patches.run)
    return tuple((f"patches.{name}", value) for name, value in text.sizes(sizes))


def conv_view(node: Conv, plan: MatrixPlan) -> GemmKernel:
    """A convolution by the algorithm of its plan."""
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = FieldPrinter(scope)
    epilogue = conv_epilogue(text, node, node.stores, plan)
    fields = conv_fields(text, node)
    if form := WINOGRAD_FORMS.get(node.algorithm):
        arguments = [form.outputs, *([form.stride] if form.stride > 1 or form.taps else []), *(["true"] * form.taps)]
        written = ", ".join(map(str, arguments))
        return GemmKernel("conv_winograd.cpp.j2", text.params(), fields, epilogue, form=written)
    if node.algorithm == "integer":
        return _integer_view(node, text, epilogue, fields)
    template = "conv" if plan.algorithm == "direct" else f"conv_{plan.algorithm}"
    return GemmKernel(f"{template}.cpp.j2", text.params(), fields, epilogue)


def _integer_view(node: Conv, text: FieldPrinter, epilogue: Epilogue, fields: Fields) -> GemmKernel:
    """A depthwise convolution of int8."""
    epilogue = replace(epilogue, sum_type="int32_t", sum_vector="vi32")
    fields += (("zero", str(node.zero)),)
    window = node.window
    form = ", ".join(map(str, (*window.kernel, window.stride[-1], CONVOLUTIONS.integer_windows)))
    return GemmKernel("conv_integer.cpp.j2", text.params(), fields, epilogue, form=form)


def conv_epilogue(text: FieldPrinter, node: Conv, stores: Sequence[Store], plan: MatrixPlan) -> Epilogue:
    """How a convolution finishes its elements with these stores."""
    loops, c = epilogues.conv_epilogue(node, stores), node.dims[-1]
    if node.algorithm == "nchw":  # a row of pixels at a time
        return _epilogue(text, loops, node.acc.name, plan.epilogue)
    if node.algorithm == "transposing":  # a block of pixels at a time, flat
        return _epilogue(text, loops, node.acc.name, plan.epilogue, run=ONE)
    groups = node.window.groups
    by_group = plan.algorithm == "direct" or node.algorithm in WINOGRAD_FORMS  # a run of channels ends with its group
    run = as_index(_channels(c) // groups) if by_group and groups > 1 else c.extent
    return _epilogue(text, loops, node.acc.name, plan.epilogue, run)


def conv_fields(text: FieldPrinter, node: Conv) -> Fields:
    """The fields of a convolution's ConvArgs; an input that is local to the kernel has no address."""
    win, axes = node.window, "dhw"[-len(node.window.kernel) :]
    sizes: dict[str, Index | int] = {"batch": node.in_shape[0], "in_c": node.in_shape[-1], "out_c": node.channel.extent}
    sizes |= {f"in_{a}": n for a, n in zip(axes, node.in_shape[1:-1], strict=True)}
    sizes |= {f"out_{a}": v.extent for a, v in zip(axes, node.pixels[1:], strict=True)}
    for name in ("kernel", "stride", "pad", "dilation"):
        sizes |= {f"{name}_{a}": n for a, n in zip(axes, getattr(win, name), strict=True)}
    fields = text.sizes({**sizes, "groups": win.groups})
    if node.x.buffer not in text.scope.locals:
        fields += text.address("x", node.x)
    steps = ("x_batch", *(f"x_{a}" for a in axes), "x_c")
    fields += text.sizes(dict(zip(steps, node.x.strides, strict=False)))
    return fields + text.address("w", Operand(node.w, node.w_offset, ()))


def attention_view(node: Attention, plan: MatrixPlan) -> AttentionKernel:
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = FieldPrinter(scope)
    score = _score(scope, node) if node.score is not None else None
    fields = _attention_sizes(text, node)
    operands = {"q": node.q, "k": node.k, "v": node.v, "out": node.out}
    for name, rest in (("k", node.k_rest), ("v", node.v_rest)):
        if rest is not None:
            operands[f"{name}_rest"] = rest.operand
            fields += text.sizes({f"{name}_first": rest.first})
    for name, pages in (("k", node.k_pages), ("v", node.v_pages)):
        if pages is not None:
            fields += text.address(f"{name}_pages", pages.table)
            steps = {"batch": pages.table.strides[0], "step": pages.step}
            fields += text.sizes({f"{name}_pages_{what}": step for what, step in steps.items()})
            fields += ((f"{name}_pages_shift", str(pages.rows.bit_length() - 1)),)
    if node.logsumexp is not None:
        operands["logsumexp"] = node.logsumexp
        fields += (("empty", "-__builtin_inff()" if node.empty else "0.0f"),)
    if node.sink is not None:
        operands["sink"] = node.sink
    fields += _attention_operands(text, operands) + _attention_flags(node)
    arguments = ATTENTION_ARGUMENTS[node.q.buffer.dtype]
    return AttentionKernel(
        "attention.cpp.j2", text.params(), fields, arguments, score, skips=plan.skips_hidden and score is not None
    )


def attention_gradient_view(node: AttentionGradient) -> AttentionKernel:
    scope = Scope(frozenset(node.writes()), node.origin.describe())
    text = FieldPrinter(scope)
    score = _score(scope, node) if node.score is not None else None
    fields = _attention_sizes(text, node)
    operands = {"q": node.q, "k": node.k, "v": node.v, "grad": node.grad, "logsumexp": node.logsumexp}
    operands |= {"inner": node.inner, "of_q": node.of_q, "of_k": node.of_k, "of_v": node.of_v}
    fields += _attention_operands(text, operands, {"grad": "out"}) + _attention_flags(node)
    arguments = ATTENTION_GRADIENT_ARGUMENTS[node.q.buffer.dtype]
    return AttentionKernel("attention.cpp.j2", text.params(), fields, arguments, score, "attention_gradient")


def _attention_sizes(text: FieldPrinter, node: Attention | AttentionGradient) -> Fields:
    b, h, m, d = (v.extent for v in node.dims)
    sizes = {"batch": b, "heads": h, "kv_heads": node.kv_heads, "queries": m, "keys": node.keys}
    return text.sizes({**sizes, "head_size": node.head_size, "value_size": d})


def _attention_operands(
    text: FieldPrinter, operands: Mapping[str, Operand], strides_of: Mapping[str, str] = MappingProxyType({})
) -> Fields:
    """Addresses, then strides; strides_of: whose strides have another name."""
    fields: Fields = ()
    for name, o in operands.items():
        fields += text.address(name, o)
    for name, o in operands.items():
        steps = (f"{strides_of.get(name, name)}_{step}" for step in ("batch", "head", "row"))
        fields += text.sizes(dict(zip(steps, o.strides, strict=True)))
    return fields


def _attention_flags(node: Attention | AttentionGradient) -> Fields:
    causal = "true" if node.causal else "false"
    return (("scale", f"{node.scale!r}f"), ("causal", causal), ("causal_offset", "0"))


class FieldPrinter:
    """Prints the fields of an argument struct; numbers become arguments of the kernel (see lift.py).

    prefix: of the arguments' names, for a kernel with several structs.
    """

    def __init__(self, scope: Scope, prefix: str = "", lifted: Lifted | None = None):
        self.scope = scope
        self.prefix = prefix
        self.text = Emitter(scope, None)
        self.lifted = Lifted() if lifted is None else lifted

    def sizes(self, values: Mapping[str, Index | int]) -> Fields:
        return tuple((name, self._size(name, as_index(value))) for name, value in values.items())

    def address(self, name: str, o: Operand) -> Fields:
        start, offset = self.scope.buffer(o.buffer), self._size(f"{name}_offset", o.offset)
        return ((name, start if offset == "0" else f"{start} + {offset}"),)

    def _size(self, name: str, value: Index) -> str:
        small = value.constant is not None and 0 <= value.constant <= 1
        return self.text.index(value if name in GEOMETRY or small else self.lifted.argument(self.prefix + name, value))

    def params(self) -> tuple[Param, ...]:
        return self.scope.params()


# epilogues -----------------------------------------------------------------------------------------------------------
def _channels(c: Var) -> int:
    count = c.extent.constant
    assert count is not None, "convolutions have a fixed number of channels"
    return count


def _epilogue(
    text: FieldPrinter,
    loops: epilogues.Epilogue,
    acc: str,
    plan: EpiloguePlan,
    run: Index | None = None,
    others: Sequence[str] = (),
) -> Epilogue:
    """The stores over z (the batch), m (the rows) and the lanes of column.

    run: columns that a call of the epilogue finishes are a multiple of what this is a multiple of; None: of all.
    others: sums of columns that are finished together with those of `acc`.
    """
    scope, lifted, column = text.scope, text.lifted, loops.column
    stores = [lifted.store(s) for s in loops.stores]
    for var, name in ((loops.z, "z"), (loops.m, "m"), (column, "column")):
        scope.loop(var, name)
    sums = {acc: "acc"} | {name: f"other{i or ''}" for i, name in enumerate(others)}
    lanes = _segment(scope, stores, column, sums, run or column.extent)
    only_added = added(plan.adds, scope, column, lifted) if plan.adds is not None else ()
    places = results(plan.results, scope, column, lifted) if plan.results is not None else None
    prefetch = prefetch_lines(lifted_prefetches(plan.prefetch, lifted), column, scope)
    return Epilogue((), lanes, prefetch, only_added, places, tuple(sums.values()))


def _segment(scope: Scope, stores: Sequence[Store], column: Var, accs: dict[str, str], run: Index) -> Lanes:
    names = {name: f"{text}_" for name, text in accs.items()}
    emitters = [Emitter(scope, column, p, names, frozenset(accs)) for p in (False, True)]
    for e in emitters:
        e.count_uses(s.value for s in stores)
        for s in stores:
            e.store(s)
    main, tail = emitters
    whole = run.constant is not None and run.constant % WIDEST_LANES == 0
    return Lanes("column", main.index(column.extent), tuple(main.pre), tuple(main.body), tuple(tail.body), whole)


def _score(scope: Scope, node: Attention | AttentionGradient) -> Epilogue:
    assert node.score is not None
    b, h, m, _ = node.dims
    for var, name in ((b, "b"), (h, "h"), (m, "m"), (node.key, "column")):
        scope.loop(var, name)
    lines: list[tuple[str, ...]] = []
    pre: tuple[str, ...] = ()
    for tail in (False, True):
        e = Emitter(scope, node.key, tail, {"score": "acc_"}, frozenset({"score"}))
        e.count_uses([node.score])
        value = e.lanes(node.score)
        store = f"store_tail(s + i, {value}, count);" if tail else f"store(s + i, {value});"
        lines.append((*e.body, store))
        pre = tuple(e.pre)
    return Epilogue((), Lanes("column", "", pre, lines[0], lines[1], False))
