"""The rows of a tile of attention's scores: where queries, keys and what belongs to them lie."""

from __future__ import annotations

from ...ir.buffers import Operand
from ...ir.plans.gpu import AttentionPlan, GradientPart
from ...ir.structured import Attention, AttentionGradient, Pages
from ...schedule.gpu.product_plans import key_group
from .emit import Place, TritonEmitter
from .matrix import count, divides, scalar, times
from .scope import TritonScope


class QueryRows:
    """The rows of a product of queries and keys: the queries of one head, or of all heads that share a key head."""

    def __init__(self, node: Attention | AttentionGradient, plan: AttentionPlan | GradientPart, scope: TritonScope):
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
        lines: list[str] = []
        if not isinstance(self.node, Attention):
            return ()
        for name, pages in (("k", self.node.k_pages), ("v", self.node.v_pages)):
            if pages is not None:
                row = times("b", self.scope, pages.table.strides[0])
                block = times(f"(keys // {pages.rows})", self.scope, pages.table.strides[1])
                lines.append(f"{name}_blocks = tl.load({self._start(pages.table, f'{row} + {block}')})")
        return tuple(lines)

    def _start(self, o: Operand, index: str) -> str:
        offset = TritonEmitter(self.scope, {}).index(o.offset)
        return f"{self.scope.buffer(o.buffer)} + ({index}{'' if offset == '0' else f' + {offset}'})"
