"""Attention as one Triton kernel: a tile of query rows for each program, or for several that share its keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...ir.buffers import Operand
from ...ir.expr import Acc, Expr
from ...ir.index import ONE, as_index
from ...ir.plans.gpu import AttentionPlan, SeenKeys
from ...ir.plans.tiles import AttentionTile
from ...ir.structured import Attention, Pages
from ...schedule.gpu.blocks import blocks
from ...schedule.gpu.product_plans import key_group
from .emit import Place, TritonEmitter, Value
from .kernel import TL_DTYPE, Launch
from .matrix import (
    Shared,
    count,
    divides,
    launch,
    mask_text,
    parameters,
    precision_text,
    scalar,
    times,
)
from .scope import TritonScope

LOG2E = math.log2(math.e)
#: a float32 that is finite times LOG2E; scores below it are as good as it
LOWEST = -2.0e38


@dataclass(frozen=True)
class RunView:
    """A loop over blocks of keys. edge: keys may lie past the end or, when causal, in the future. score: lines that
    change the score."""

    begin: str
    end: str
    edge: bool
    score: tuple[str, ...]


@dataclass(frozen=True)
class AttentionView:
    """Of attention.py.j2: numbers, and finished texts."""

    params: str
    block_m: int
    block_n: int
    block_d: int
    block_e: int
    block_r: int  # of the second block of a row of keys; 0: there is none
    latent: bool  # values are the first elements of keys
    q_rest_mask: str
    k_rest_mask: tuple[str, str]
    locate: tuple[str, ...]
    row_lines: tuple[str, ...]
    q_base: str
    q_row: str
    q_rows: str
    q_mask: str
    q_tiles: bool  # queries come through a descriptor too
    k_head: str
    k_row: str
    k_rows: str
    page_lines: tuple[str, ...]  # which blocks of the cache the keys of a step lie in
    k_mask: tuple[str, str]  # of a block, and of one with keys past the end
    v_head: str
    v_row: str
    v_rows: str
    v_mask: tuple[str, str]
    out_base: str
    out_rows: str
    out_mask: str
    out_dtype: str
    dtype: str
    queries: str
    keys: str
    head_size: str
    value_size: str
    tile: AttentionTile
    range_lines: tuple[str, ...]
    runs: tuple[RunView, ...]
    end: str  # of the keys that a program reads
    single: bool
    causal: bool
    clamp_n: bool
    guard: bool
    sink: str  # the place of a row's sink, "" of none
    sums: tuple[str, str]  # place of the logarithm of a row's sum, and the mask of the store; "" where it is not stored
    empty: str  # that of a row without a key
    log2: str  # of numbers whose powers of two are weights, and back
    log2e: str
    scale: str
    log2_scale: str  # what makes a score an exponent of two
    scaled: bool  # the score is the scaled product
    lowest: str  # score whose exponent of two is finite
    score: tuple[str, ...]  # of the only block
    precision: str
    pdl: bool
    wide: bool
    shared: bool
    split: int
    part: int  # floats that one of the programs that share a tile leaves: maximum, sum and values of each row


def attention_launch(name: str, node: Attention, plan: AttentionPlan) -> Launch:
    """The launch of an attention, cut by the tile of its plan."""
    tile = plan.cut
    scope = TritonScope.of(node, plan)
    rows = _Rows(node, plan, scope)
    keys, tiles = node.keys, blocks(rows.count, tile.m) * rows.products
    block_d, block_e = plan.head, plan.value
    part = tile.m * (block_e + 2)
    shared = Shared(tiles * (tile.split * part * 4), tiles * 4) if tile.shared else None
    head = {"d": node.head_size, "e": node.dims[3].extent}
    masks = {
        n: "" if head[n] == size else f"({n} < {scalar(scope, head[n])})"
        for n, size in (("d", block_d + plan.rest), ("e", block_e))
    }
    rest = masks["d"].replace("d", "r")  # the first of two blocks is whole
    masks["d"] = "" if plan.rest else masks["d"]
    dtype = node.v.buffer.dtype
    ranges = _ranges(node, plan, scope, rows)
    q, out = rows.texts(node.q), rows.texts(node.out)
    score = _score(node.score, scope, rows)
    runs, range_lines = _runs(node, plan, ranges, score, lambda shown: _score(shown, scope, rows))
    # the one block may reach past the keys, whatever the rows see of them
    end = scalar(scope, keys) if plan.single else runs[-1].end
    row_mask = [] if divides(tile.m, rows.count) else [f"(rows < {scalar(scope, rows.count)})[:, None]"]
    out_mask = " & ".join([*row_mask, *([f"{masks['e']}[None, :]"] if masks["e"] else [])])
    view = AttentionView(
        block_m=tile.m,
        block_n=tile.n,
        block_d=block_d,
        block_e=block_e,
        block_r=plan.rest,
        latent=plan.latent,
        q_rest_mask=mask_text([*row_mask, f"{rest}[None, :]" if rest else ""]),
        k_rest_mask=_both(rest, "[:, None]", "[None, :]"),
        locate=rows.locate(),
        row_lines=rows.lines(),
        q_base=q[0],
        q_row=scalar(scope, node.q.strides[2]),
        q_rows=q[1],
        q_tiles=plan.queries,
        q_mask=mask_text([*row_mask, f"{masks['d']}[None, :]" if masks["d"] else ""]),
        tile=tile,
        queries=scalar(scope, node.dims[2].extent),
        head_size=scalar(scope, head["d"]),
        value_size=scalar(scope, head["e"]),
        k_head=rows.head(node.k),
        k_row=scalar(scope, node.k.strides[2]),
        k_rows=rows.keys("k", node.k, node.k_pages, "[None, :]"),
        page_lines=rows.pages(),
        k_mask=_both(masks["d"], "[:, None]", "[None, :]"),
        v_head=rows.head(node.v),
        v_row=scalar(scope, node.v.strides[2]),
        v_rows=rows.keys("v", node.v, node.v_pages, "[:, None]"),
        v_mask=_both(masks["e"], "[None, :]", "[:, None]"),
        out_base=out[0],
        out_rows=out[1],
        out_mask=f", mask={out_mask}" if out_mask else "",
        out_dtype=TL_DTYPE[node.out.buffer.dtype],
        dtype=TL_DTYPE[dtype],
        keys=scalar(scope, keys),
        range_lines=range_lines,
        runs=runs,
        end=end,
        single=plan.single,
        causal=node.causal,
        clamp_n=not divides(tile.n, keys),
        guard=node.score is not None or tile.shared,
        sink=rows.each(node.sink),
        sums=(rows.each(node.logsumexp), f", mask=rows < {scalar(scope, rows.count)}" if row_mask else ""),
        empty='float("-inf")' if node.empty else "0.0",
        log2=repr(math.log(2)),
        log2e=repr(LOG2E),
        scale=repr(node.scale),
        log2_scale=repr(node.scale * LOG2E if plan.folded else LOG2E),
        scaled=not plan.folded,
        lowest=repr(LOWEST),
        score=score,
        precision=precision_text(plan.precision, {dtype}),
        pdl=plan.pdl,
        wide=scope.wide,
        shared=tile.shared,
        split=tile.split,
        part=part,
        params=", ".join(p.name for p in parameters(scope, shared)),
    )
    suffix = f"{tile.m}x{tile.n}" + tile.shares
    grid = (tiles, as_index(tile.split), ONE)
    return launch(f"{name}_{suffix}", "attention.py.j2", view, scope, node, grid, plan, shared)


class _Rows:
    """The rows of a product of queries and keys: the queries of one head, or of all heads that share a key head."""

    def __init__(self, node: Attention, plan: AttentionPlan, scope: TritonScope):
        self.node, self.tile, self.scope = node, plan.cut, scope
        b, h, m, _ = node.dims
        self.packed, self.group = plan.form == "packed", key_group(node)
        self.late_first = plan.order == "late first"
        self.count = m.extent * self.group if self.packed else m.extent
        self.heads = node.kv_heads if self.packed else h.extent
        self.products = b.extent * self.heads
        axes = ("m",) if self.packed else ()
        self.places = {b: Place("b"), h: Place("h", axes), m: Place("m", ("m",)), node.key: Place("n", ("n",))}

    def locate(self) -> tuple[str, ...]:
        """tile, split, b, h and the key head g of this program."""
        scope = self.scope
        tiles = count(scope, (self.count, self.tile.m))
        heads, products = scalar(scope, self.heads), scalar(scope, self.products)
        wide = ".to(tl.int64)" if scope.wide else ""
        if tiles == "1":
            lines = ["tile = 0", "z = tl.program_id(0)"]
        elif self.late_first:
            lines = [f"tile = {tiles} - 1 - tl.program_id(0) // {products}", f"z = tl.program_id(0) % {products}"]
        else:
            lines = [f"tile = tl.program_id(0) % {tiles}", f"z = tl.program_id(0) // {tiles}"]
        if self.tile.shared:
            lines.append("split = tl.program_id(1)")
        lines.append(f"b = (z // {heads}){wide}" if wide else f"b = z // {heads}")
        at = f"(z % {heads}){wide}" if wide else f"z % {heads}"
        if self.packed:
            return (*lines, f"g = {at}")
        return (*lines, f"h = {at}", f"g = h // {self.group}" if self.group > 1 else "g = h")

    def lines(self) -> tuple[str, ...]:
        """The rows of the tile and where they lie: m, and h where it differs by row."""
        rows, scope = self.count, self.scope
        lines = [f"rows = tile * {self.tile.m} + tl.arange(0, {self.tile.m})"]
        if scope.wide:
            lines.append("rows = rows.to(tl.int64)")
        at = "rows"
        if not divides(self.tile.m, rows):
            at = f"tl.minimum(rows, {scalar(scope, rows)} - 1)"
        if not self.packed:
            return (*lines, f"m = {at}[:, None]" if at == "rows" else f"m = ({at})[:, None]")
        queries = scalar(scope, self.node.dims[2].extent)
        if queries == "1":
            return (*lines, f"h = g * {self.group} + ({at})[:, None]", "m = tl.zeros_like(h)")
        lines.append(f"at = {at}")
        return (*lines, f"h = g * {self.group} + (at // {queries})[:, None]", f"m = (at % {queries})[:, None]")

    def texts(self, o: Operand) -> tuple[str, str]:
        """Start and row offsets of an operand that lies by query."""
        b, h, m = (times(name, self.scope, s) for name, s in zip("bhm", o.strides, strict=True))
        if self.packed:
            return self._start(o, b), f"{h} + {m}"
        return self._start(o, f"{b} + {h}"), m

    def each(self, o: Operand | None) -> str:
        """Places of an operand of one element for each row, "" of none."""
        if o is None:
            return ""
        start, offsets = self.texts(o)
        return f"{start} + tl.reshape(({offsets}) + tl.zeros_like(m), ({self.tile.m},))"

    def head(self, o: Operand) -> str:
        """Start of an operand that lies by key."""
        b, g = (times(name, self.scope, s) for name, s in zip("bg", o.strides[:2], strict=True))
        return self._start(o, f"{b} + {g}")

    def keys(self, name: str, o: Operand, pages: Pages | None, axes: str) -> str:
        """Offsets of the keys of a step from the start of an operand that lies by key; page_lines come before."""
        if pages is None:
            return times(f"keys{axes}", self.scope, o.strides[2])
        block = times(f"{name}_blocks{axes}", self.scope, pages.step)
        return f"{block} + " + times(f"(keys % {pages.rows}){axes}", self.scope, o.strides[2])

    def pages(self) -> tuple[str, ...]:
        lines = []
        for name, pages in (("k", self.node.k_pages), ("v", self.node.v_pages)):
            if pages is not None:
                row = times("b", self.scope, pages.table.strides[0])
                block = times(f"(keys // {pages.rows})", self.scope, pages.table.strides[1])
                lines.append(f"{name}_blocks = tl.load({self._start(pages.table, f'{row} + {block}')})")
        return tuple(lines)

    def _start(self, o: Operand, index: str) -> str:
        offset = TritonEmitter(self.scope, {}).index(o.offset)
        return f"{self.scope.buffer(o.buffer)} + ({index}{'' if offset == '0' else f' + {offset}'})"


def _both(mask: str, axes: str, keys: str) -> tuple[str, str]:
    """The mask of a load of a block of keys, and with `valid` keys only."""
    own = f"{mask}{axes}" if mask else ""
    return mask_text([own]), mask_text([own, f"valid{keys}"])


def _runs(
    node: Attention,
    plan: AttentionPlan,
    ranges: tuple[str, str, str, tuple[str, ...]],
    score: tuple[str, ...],
    lines_of: Callable[[Expr], tuple[str, ...]],
) -> tuple[tuple[RunView, ...], tuple[str, ...]]:
    """The loops over blocks of keys, and lines that compute their ends.

    ranges: as of _ranges(). lines_of: gives the lines of another score.
    """
    begin, whole, end, lines = ranges
    edge = node.causal or not divides(plan.cut.n, node.keys)
    if plan.seen is None or plan.seen.shown is None:
        runs = [RunView(begin, whole, False, score)]
        return (*runs, *([RunView(whole, end, True, score)] if edge else [])), lines
    n = plan.cut.n
    shown = RunView(begin, "all_end", False, lines_of(plan.seen.shown))
    last = RunView("all_end", end, edge, score)
    to = f"all_end = tl.maximum({{begin}}, tl.minimum({whole}, all_end // {n} * {n}))"
    if not plan.seen.begins:
        return (shown, last), (*lines, to.format(begin=begin))
    up = f"tl.maximum(tl.cdiv(all_begin, {n}) * {n}, {begin})"
    clamped = f"all_begin = tl.minimum({up}, tl.maximum({whole}, {begin}))"
    first = RunView(begin, "all_begin", False, score)
    return (first, replace(shown, begin="all_begin"), last), (*lines, clamped, to.format(begin="all_begin"))


def _ranges(
    node: Attention, plan: AttentionPlan, scope: TritonScope, rows: _Rows
) -> tuple[str, str, str, tuple[str, ...]]:
    """Where the keys begin, up to where whole blocks go, where they end; and lines that compute that."""
    keys, tile = scalar(scope, node.keys), plan.cut
    n, number = tile.n, node.keys.constant
    whole_keys = str(number // n * n) if number is not None else f"{keys} // {n} * {n}"
    if plan.seen is not None:
        seen = _seen_lines(plan.seen, n, keys, scope, rows)
        if tile.shared:
            share = f"run = tl.cdiv(tl.maximum(end - begin, 0), {tile.split * n}) * {n}"
            ends = ("first = begin + split * run", "last = tl.minimum(first + run, end)")
            return "first", "whole", "last", (*seen, share, *ends, _whole_run(n))
        return "begin", "whole", "end", (*seen, f"whole = tl.minimum(end, {whole_keys})")
    if tile.shared:
        run = (
            str(-(-number // (tile.split * n)) * n)
            if number is not None
            else f"tl.cdiv({keys}, {tile.split * n}) * {n}"
        )
        first = (f"run = {run}", "first = split * run", f"last = tl.minimum(first + run, {keys})")
        return "first", "whole", "last", (*first, "whole = first" if node.causal else _whole_run(n))
    if not node.causal:
        return "0", whole_keys, keys, ()
    if rows.packed:
        return "0", "0", keys, ()
    lines = (
        f"whole = tl.minimum((tile * {tile.m} + 1) // {n} * {n}, {whole_keys})",
        f"end = tl.minimum((tile + 1) * {tile.m}, {keys})",
    )
    return "0", "whole", "end", lines


def _whole_run(n: int) -> str:
    return f"whole = first + tl.maximum(last - first, 0) // {n} * {n}"


def _seen_lines(found: SeenKeys, n: int, keys: str, scope: TritonScope, rows: _Rows) -> list[str]:
    """begin and end of the blocks of keys that a row of the tile may see, all_begin and all_end of the keys that all
    rows may see, where their score is another one; several conditions hold at once."""
    emit = TritonEmitter(scope, rows.places, {}, stem="bound")
    emit.count_uses([*found.begins, *found.ends])
    begins, ends = ([emit.value(e) for e in bounds] for bounds in (found.begins, found.ends))
    grid = "tl.zeros((1, 1), tl.int64)"  # of what is the same for all rows, too
    lines = [*emit.lines, "begin = 0", f"end = {keys}"]
    lines += [f"begin = tl.maximum(begin, tl.min({text} + {grid}))" for text in begins]
    lines += [f"end = tl.minimum(end, tl.max({text} + {grid}))" for text in ends]
    narrow = "" if scope.wide else ".to(tl.int32)"  # the bounds are i64, and what counts from them is then, too
    if found.shown is not None:
        lines += [*(["all_begin = begin"] if begins else []), "all_end = end"]
        lines += [f"all_begin = tl.maximum(all_begin, tl.max({text} + {grid}))" for text in begins]
        lines += [f"all_end = tl.minimum(all_end, tl.min({text} + {grid}))" for text in ends]
        if begins:
            lines.append(f"all_begin = tl.minimum(all_begin, {keys}){narrow}")
        if ends:
            lines.append(f"all_end = tl.maximum(all_end, 0){narrow}")
    if begins:
        lines.append(f"begin = tl.minimum(begin, {keys}){narrow} // {n} * {n}")
    if ends:
        lines.append(f"end = tl.minimum(tl.cdiv(tl.maximum(end, 0){narrow}, {n}) * {n}, {keys})")
    return lines


def _score(score: Expr | None, scope: TritonScope, rows: _Rows) -> tuple[str, ...]:
    """Lines that change a score, in terms of b, h, m and n."""
    if score is None or isinstance(score, Acc):
        return ()
    emit = TritonEmitter(scope, rows.places, {}, {"score": Value("score", ("m", "n"))})
    emit.count_uses([score])
    value = emit.value(score)
    return (*emit.lines, f"score = {value}")
