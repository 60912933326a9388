"""The gradient of attention as Triton kernels: over blocks of queries, over blocks of keys, or over key heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...ir.buffers import Operand
from ...ir.index import ONE, Index
from ...ir.plans.gpu import GradientPart, GradientPlan, SeenKeys
from ...ir.structured import AttentionGradient
from ...schedule.gpu.blocks import blocks
from .attention import LOG2E, both_masks
from .attention_rows import QueryRows
from .attention_runs import RunView, dropout_lines, ranges_of, runs_of, score_lines
from .emit import Place, TritonEmitter
from .kernel import TL_DTYPE, Launch
from .matrix import count, divides, launch, mask_text, parameters, precision_text, scalar, times
from .scope import TritonScope


@dataclass(frozen=True)
class Access:
    """An operand: its beginning for the heads of a program, the offsets of its rows from there, the mask of its load
    or store, and the type that it is stored in."""

    base: str = ""
    rows: str = ""
    mask: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class KeyAccess:
    """Keys or values; masks: of a block, and of one with keys past the end."""

    head: str
    rows: str = ""
    masks: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class GradientView:
    """Of attention_gradient_queries.py.j2 and attention_gradient_keys.py.j2: numbers, and finished texts."""

    block_m: int
    block_n: int
    block_d: int
    block_e: int
    group: int  # query heads that share a key head, where it is `grouped`
    grouped: bool
    whole: bool
    grad_cast: str
    k: KeyAccess
    v: KeyAccess
    dtype: str
    keys: str
    causal: bool
    clamp_n: bool
    dropout: tuple[str, ...]
    exponent: Mapping[str, str]  # by the axes of a number of each row
    log2e: str
    scale: str
    scaled: bool  # the score is the scaled product
    precision: str
    pdl: bool
    wide: bool
    params: str = ""
    locate: tuple[str, ...] = ()
    row_lines: tuple[str, ...] = ()
    q: Access = Access()
    grad: Access = Access()
    of_q: Access = Access()
    of_k: Access = Access()
    of_v: Access = Access()
    log: str = ""  # places of what is stored of the rows
    log_mask: str = ""  # a row past the end has infinitely many keys, and no weight
    inner: str = ""
    top: str = ""  # "": none is stored
    end: str = ""  # of the keys that a program reads
    range_lines: tuple[str, ...] = ()
    runs: tuple[RunView, ...] = ()


def gradient_launches(name: str, node: AttentionGradient, plan: GradientPlan) -> tuple[Launch, ...]:
    """A launch for each part of the plan."""
    return tuple(_launch(name, node, plan, part) for part in plan.parts)


def _launch(name: str, node: AttentionGradient, plan: GradientPlan, part: GradientPart) -> Launch:
    tile, (b, h, m, _) = part.cut, node.dims
    scope = TritonScope(frozenset(node.writes()), wide=part.wide)
    if part.form == "queries":
        view, template = _of_queries(node, plan, part, scope), "attention_gradient_queries.py.j2"
        programs = blocks(m.extent, tile.m) * (b.extent * h.extent)
    else:
        view, template = _of_keys(node, plan, part, scope), "attention_gradient_keys.py.j2"
        programs = blocks(node.keys, tile.n) * (b.extent * node.kv_heads)
    view = replace(view, params=", ".join(p.name for p in parameters(scope, None)))
    symbol = f"{name}_{part.form}_{tile.m}x{tile.n}"
    return launch(symbol, template, view, scope, node, (programs, ONE, ONE), part)


def _of_queries(node: AttentionGradient, plan: GradientPlan, part: GradientPart, scope: TritonScope) -> GradientView:
    rows = QueryRows(node, part, scope)
    score = score_lines(node.score, scope, rows)
    ranges = ranges_of(node, part, scope, rows)
    runs, lines = runs_of(node, part, ranges, score, lambda shown: score_lines(shown, scope, rows))
    mask = [] if divides(part.cut.m, rows.count) else [f"(rows < {scalar(scope, rows.count)})[:, None]"]
    d, e = (_lanes(name, scope, *sizes) for name, sizes in _heads(node, plan).items())
    view = _common(node, plan, part, scope, rows)
    return replace(
        view,
        locate=rows.locate(),
        row_lines=rows.lines(),
        q=Access(*rows.texts(node.q), _mask(*mask, d and f"{d}[None, :]")),
        grad=Access(*rows.texts(node.grad), _mask(*mask, e and f"{e}[None, :]")),
        of_q=Access(*rows.texts(node.of_q), _stored(*mask, d and f"{d}[None, :]"), _type(node.of_q)),
        k=KeyAccess(view.k.head, rows.keys("k", node.k, None, "[None, :]"), both_masks(d, "[:, None]", "[None, :]")),
        v=KeyAccess(view.v.head, rows.keys("v", node.v, None, "[None, :]"), both_masks(e, "[:, None]", "[None, :]")),
        log=rows.each(node.logsumexp),
        inner=rows.each(node.inner),
        top=rows.each(node.top),
        range_lines=lines,
        runs=runs,
        end=runs[-1].end,
    )


def _of_keys(node: AttentionGradient, plan: GradientPlan, part: GradientPart, scope: TritonScope) -> GradientView:
    rows, tile = QueryRows(node, part, scope), part.cut
    rows.places = {**rows.places, node.dims[1]: Place("h"), node.dims[2]: Place("m", ("m",))}
    queries, keys = (scalar(scope, size) for size in (rows.count, node.keys))
    past, tail = not divides(tile.m, rows.count), not divides(tile.n, node.keys)
    d, e = (_lanes(name, scope, *sizes) for name, sizes in _heads(node, plan).items())
    inside, known = f"(rows < {queries})" if past else "", f"(places < {keys})[:, None]" if tail else ""
    runs, lines = _query_runs(node, part, scope, rows)

    def at(o: Operand, axes: str) -> tuple[str, str]:
        return rows.texts(o)[0], times(f"at{axes}", scope, o.strides[2])

    def each(o: Operand | None) -> str:
        return "" if o is None else " + ".join(at(o, ""))

    def of_keys(o: Operand, lanes: str) -> Access:
        offsets = times("places[:, None]", scope, o.strides[2])
        return Access(rows.head(o), offsets, _stored(known, lanes and f"{lanes}[None, :]"), _type(o))

    view = _common(node, plan, part, scope, rows)
    stored = _stored(inside and f"{inside}[:, None]", d and f"{d}[None, :]")
    offsets = [times("keys[:, None]", scope, o.strides[2]) for o in (node.k, node.v)]
    return replace(
        view,
        locate=_locate(node, part, scope),
        row_lines=_row_lines(part, scope, rows.count),
        q=Access(*at(node.q, "[None, :]"), _mask(d and f"{d}[:, None]")),
        grad=Access(*at(node.grad, "[:, None]"), _mask(e and f"{e}[None, :]")),
        of_q=Access(*at(node.of_q, "[:, None]"), stored, _type(node.of_q)),
        of_k=of_keys(node.of_k, d),
        of_v=of_keys(node.of_v, e),
        k=KeyAccess(view.k.head, offsets[0], both_masks(d, "[None, :]", "")),
        v=KeyAccess(view.v.head, offsets[1], both_masks(e, "[None, :]", "")),
        log=each(node.logsumexp),
        log_mask=f', mask={inside}, other=float("inf")' if past else "",
        inner=each(node.inner),
        top=each(node.top),
        range_lines=lines,
        runs=runs,
    )


def _common(
    node: AttentionGradient, plan: GradientPlan, part: GradientPart, scope: TritonScope, rows: QueryRows
) -> GradientView:
    """What both sides have alike."""
    tile, dtype, factor = part.cut, node.q.buffer.dtype, repr(node.scale * LOG2E if plan.folded else LOG2E)
    form = "score * {factor} - shift{axes}" if node.top is None else "(score - shift{axes}) * {factor} - log{axes}"
    exponent = {axes: form.format(factor=factor, axes=axes) for axes in ("[:, None]", "[None, :]")}
    return GradientView(
        block_m=tile.m,
        block_n=tile.n,
        block_d=plan.head,
        block_e=plan.value,
        group=rows.group,
        grouped=rows.group > 1,
        whole=part.form == "whole",
        grad_cast="" if node.grad.buffer.dtype == dtype else f".to({TL_DTYPE[dtype]})",
        k=KeyAccess(rows.head(node.k)),
        v=KeyAccess(rows.head(node.v)),
        dtype=TL_DTYPE[dtype],
        keys=scalar(scope, node.keys),
        causal=node.causal,
        clamp_n=not divides(tile.n, node.keys),
        dropout=dropout_lines(node, scope, rows),
        exponent=MappingProxyType(exponent),
        log2e=repr(LOG2E),
        scale=repr(node.scale),
        scaled=not plan.folded,
        precision=precision_text(plan.precision, {dtype}),
        pdl=part.pdl,
        wide=scope.wide,
    )


def _heads(node: AttentionGradient, plan: GradientPlan) -> dict[str, tuple[Index, int]]:
    return {"d": (node.head_size, plan.head), "e": (node.dims[3].extent, plan.value)}


def _lanes(name: str, scope: TritonScope, size: Index, block: int) -> str:
    """The mask of the elements of a row; "" where the block holds just these."""
    return "" if size == block else f"({name} < {scalar(scope, size)})"


def _mask(*parts: str) -> str:
    return mask_text([p for p in parts if p])


def _stored(*parts: str) -> str:
    found = " & ".join(p for p in parts if p)
    return f", mask={found}" if found else ""


def _type(o: Operand) -> str:
    return TL_DTYPE[o.buffer.dtype]


# over blocks of keys -------------------------------------------------------------------------------------------------
def _locate(node: AttentionGradient, part: GradientPart, scope: TritonScope) -> tuple[str, ...]:
    """The block of keys, b and the key head g of this program: the first blocks, which the most queries see, come
    first."""
    tiles = count(scope, (node.keys, part.cut.n))
    heads, products = scalar(scope, node.kv_heads), scalar(scope, node.dims[0].extent * node.kv_heads)
    wide = ".to(tl.int64)" if scope.wide else ""
    if tiles == "1":
        lines = ["tile = 0", "z = tl.program_id(0)"]
    else:
        lines = [f"tile = tl.program_id(0) // {products}", f"z = tl.program_id(0) % {products}"]
    return (*lines, f"b = (z // {heads}){wide}", f"g = (z % {heads}){wide}")


def _row_lines(part: GradientPart, scope: TritonScope, queries: Index) -> tuple[str, ...]:
    """The rows of a step, and where they lie: past the end at the last one."""
    lines = [f"rows = start + tl.arange(0, {part.cut.m})"]
    if scope.wide:
        lines.append("rows = rows.to(tl.int64)")
    at = "rows" if divides(part.cut.m, queries) else f"tl.minimum(rows, {scalar(scope, queries)} - 1)"
    return (*lines, f"at = {at}", "m = at[None, :]")


def _query_runs(
    node: AttentionGradient, part: GradientPart, scope: TritonScope, rows: QueryRows
) -> tuple[tuple[RunView, ...], tuple[str, ...]]:
    """The loops over blocks of queries, and lines that compute their ends."""
    m, n, queries = part.cut.m, part.cut.n, scalar(scope, rows.count)
    score = score_lines(node.score, scope, rows)
    if node.causal and part.form == "whole":
        return (RunView("0", queries, True, score),), ()
    if node.causal:
        lines = (f"middle = tl.minimum(tl.cdiv(first + {n - 1}, {m}) * {m}, {queries})",)
        return (RunView(f"first // {m} * {m}", "middle", True, score), RunView("middle", queries, False, score)), lines
    if part.seen is None or part.form == "whole":
        return (RunView("0", queries, False, score),), ()
    return (RunView("begin", "end", False, score),), _seeing(part.seen, part, scope, rows)


def _seeing(found: SeenKeys, part: GradientPart, scope: TritonScope, rows: QueryRows) -> tuple[str, ...]:
    """begin and end of the queries that may see a key of the block."""
    emit = TritonEmitter(scope, rows.places, {}, stem="bound")
    emit.count_uses([*found.begins, *found.ends])
    begins, ends = ([emit.value(e) for e in bounds] for bounds in (found.begins, found.ends))
    m, n, queries = part.cut.m, part.cut.n, scalar(scope, rows.count)
    conditions = [f"({text} < first + {n})" for text in begins] + [f"({text} > first)" for text in ends]
    step = (
        *_row_lines(part, scope, rows.count),
        *emit.lines,
        f"sees = ({' & '.join(conditions)}) & (m >= 0)",
        f"begin = tl.minimum(begin, tl.min(tl.where(sees, m, {queries})).to(tl.int32))",
        "end = tl.maximum(end, tl.max(tl.where(sees, m + 1, 0)).to(tl.int32))",
    )
    return (
        f"begin = tl.zeros([], tl.int32) + tl.full([], {queries}, tl.int32)",
        "end = tl.zeros([], tl.int32)",
        f"for start in range(0, {queries}, {m}):",
        *(f"    {line}" for line in step),
        f"begin = begin // {m} * {m}",
    )
