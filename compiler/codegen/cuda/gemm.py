"""Matrix products as Triton kernels: a tile for each program, or programs that walk over tiles (tensor descriptors)."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.buffers import Operand
from ...ir.dtypes import DTYPES
from ...ir.index import ONE, as_index, minimum
from ...ir.plans.gpu import ProductPlan
from ...ir.plans.tiles import GemmTile
from ...ir.structured import Gemm
from ...machine.gpu import LINE
from ...schedule.gpu.blocks import blocks
from .kernel import TL_DTYPE, Launch
from .matrix import (
    Part,
    PlacedAxes,
    Shared,
    count,
    divides,
    finish_lines,
    launch,
    mask_text,
    parameters,
    pointer,
    precision_text,
    scalar,
    shared_tiles,
    times,
)
from .prologue import PrologueView, prologue_view
from .scope import TritonScope


@dataclass(frozen=True)
class Block:
    """What a tensor descriptor says of an operand, and where a step finds its block.

    turned: "" where the block is as the product wants it, else the spelling that exchanges its dimensions.
    """

    shape: str
    row: str
    sizes: str
    place: str
    turned: str


@dataclass(frozen=True)
class GemmView:
    """Of gemm.py.j2, gemm_persistent.py.j2 and gemm_vector.py.j2: the numbers of the tile, and finished texts."""

    params: str
    tile: GemmTile
    block_m: int
    block_n: int
    block_k: int
    parts: tuple[Part, ...]
    finish_parts: tuple[Part, ...]
    m: str
    n: str
    k: str
    items: str  # tiles of all batches, for each of the programs that share one
    tiles: str
    tiles_m: str
    tiles_n: str
    order: str
    group: int
    batched: bool
    a_base: str
    a_rows: str
    a_depth: str
    a_step: str
    a_mask: str
    a_block: Block
    b_depth: str
    b_step: str
    b_blocks: tuple[Block, ...]  # of the parts
    edge_m: bool  # the last tile has rows past the end; they are masked, as copies of one row would all wait for it
    edge_n: bool
    mask_k: bool
    column_axes: str
    prologue: PrologueView
    casts: tuple[str, ...]
    precision: str
    sums: str  # type of the accumulators
    ahead: int  # steps whose loads are under way, of a form whose loop the compiler does not pipeline by itself
    finish: tuple[str, ...]
    pdl: bool
    prefetch: bool
    shared: bool
    split: int
    begin: str  # of the run of k
    end: str
    wide: str


#: form of a plan -> template
TEMPLATES = {"tile": "gemm.py.j2", "persistent": "gemm_persistent.py.j2", "vector": "gemm_vector.py.j2"}


def gemm_launch(name: str, node: Gemm, plan: ProductPlan) -> Launch:
    """The launch of a matrix product with its epilogue, cut by the tile of its plan."""
    tile = plan.cut
    scope = TritonScope.of(node, plan)
    axes = PlacedAxes(node, 1)
    tiles = blocks(axes.m.extent, tile.m) * blocks(axes.n.extent, tile.n) * axes.z.extent
    shared = shared_tiles(tiles, tile, node.acc.dtype)
    view = _view(node, plan, scope, axes, shared)
    grid = (tiles, as_index(tile.split), ONE)
    if plan.walkers:
        grid = (minimum(tiles * tile.split, plan.walkers), ONE, ONE)
    suffix = f"{tile.m}x{tile.n}x{tile.k}" + tile.shares
    return launch(f"{name}_{suffix}", TEMPLATES[plan.form], view, scope, node, grid, plan, shared)


def _view(node: Gemm, plan: ProductPlan, scope: TritonScope, axes: PlacedAxes, shared: Shared | None) -> GemmView:
    tile = plan.cut
    m, n, k = axes.m.extent, axes.n.extent, node.k
    (a_m, a_k), (b_k, _) = node.row_strides, node.unit_strides
    whole_k = divides(tile.k * tile.split, k)
    run = -(-k.constant // (tile.k * tile.split)) * tile.k if k.constant is not None else 0
    batched = axes.z.extent != ONE
    slices = tile.descriptors and batched
    a_base = _operand_pointer(node, node.a, scope, axes, slices)
    k_text = scalar(scope, k)
    end = k_text if not tile.shared else f"begin + {run}" if whole_k else f"tl.minimum(begin + {run}, {k_text})"
    terms = [f"z * {k_text}"] if slices else []
    if tile.shared:
        terms.append(f"split * {run}")
    if slices:
        end = f"z * {k_text} + {k_text}" if not tile.shared else f"tl.minimum(begin + {run}, z * {k_text} + {k_text})"
    inside = not divides(tile.k, k)
    parts = _parts(node, tile, scope, axes, run, inside)
    halves = tuple(Part(f"_{i}", i * tile.n // 2, tile.n // 2) for i in range(2))
    edge_m = not divides(tile.m, m)
    whole_depth = scalar(scope, k * axes.z.extent) if slices else k_text
    a_lanes, b_lanes = ("", "[None, :]") if tile.vector else ("[None, :]", "[:, None]")
    return GemmView(
        tile=tile,
        block_m=tile.m,
        block_n=tile.n,
        block_k=tile.k,
        parts=parts,
        finish_parts=halves if tile.halves else (Part("", 0, tile.n),) if node.also else parts,
        m=scalar(scope, m),
        n=scalar(scope, n),
        k=k_text,
        items=count(scope, (m, tile.m), (n, tile.n), (axes.z.extent * tile.split, 1)),
        tiles=count(scope, (m, tile.m), (n, tile.n)),
        tiles_m=count(scope, (m, tile.m)),
        tiles_n=count(scope, (n, tile.n)),
        order=plan.order,
        group=tile.group,
        batched=batched,
        a_base=a_base,
        a_rows=times("rows[:, None]", scope, a_m),
        a_depth=times(f"depth{a_lanes}", scope, a_k),
        a_step=times(str(tile.k), scope, a_k),
        a_block=_row_block(node, tile, scope, scalar(scope, m), whole_depth),
        a_mask=mask_text(["in_rows" if edge_m else "", f"inside{a_lanes}" if inside else ""]),
        b_blocks=tuple(_column_block(node, tile, scope, part, scalar(scope, n), whole_depth) for part in parts),
        b_depth=times(f"depth{b_lanes}", scope, b_k),
        b_step=times(str(tile.k), scope, b_k),
        edge_m=edge_m,
        edge_n=not divides(tile.n, n),
        column_axes="[:, None]" if tile.vector else "[None, :]",
        mask_k=inside,
        prologue=prologue_view(node, tile, scope, axes),
        casts=_casts(node),
        precision=_precision(node, plan),
        sums=TL_DTYPE[node.acc.dtype],
        ahead=plan.ahead,
        finish=finish_lines(scope, axes, node, _sums(node), (tile.m, tile.n), stored=plan.stored),
        pdl=plan.pdl,
        prefetch=plan.prefetch,
        shared=tile.shared,
        split=tile.split,
        begin=" + ".join(terms),
        end=end,
        wide=".to(tl.int64)" if scope.wide else "",
        params=", ".join(p.name for p in parameters(scope, shared)),
    )


def _row_block(node: Gemm, tile: GemmTile, scope: TritonScope, m: str, k: str) -> Block:
    """Of the left operand: rows as they lie in memory, or columns that are turned. k: of all batches, where they are
    parts of it."""
    a_m, a_k = node.row_strides
    at = f"tile_m * {tile.m}"
    if a_k == ONE:
        return Block(f"{m}, {k}", scalar(scope, a_m), f"{tile.m}, {tile.k}", f"{at}, step", "")
    return Block(f"{k}, {m}", scalar(scope, a_k), f"{tile.k}, {tile.m}", f"step, {at}", ".T")


def _column_block(node: Gemm, tile: GemmTile, scope: TritonScope, part: Part, n: str, k: str) -> Block:
    """Of a part of the right operand: the rows of a weight, which are turned, or columns as they lie in memory."""
    b_k, b_n = node.unit_strides
    at = f"tile_n * {tile.n}{part.plus}"
    if b_k == ONE:
        return Block(f"{n}, {k}", scalar(scope, b_n), f"{part.width}, {tile.k}", f"{at}, step", ".T")
    return Block(f"{k}, {n}", scalar(scope, b_k), f"{tile.k}, {part.width}", f"step, {at}", "")


def _precision(node: Gemm, plan: ProductPlan) -> str:
    """What tl.dot is told of its sum: its type, or how products of float32 are made."""
    if node.acc.dtype == "i32":
        return f", out_dtype={TL_DTYPE['i32']}"
    if plan.promoted:
        return f", max_num_imprecise_acc={plan.promoted}"
    types = {node.a_dtype} if node.quantised is not None else {node.a_dtype, node.b.buffer.dtype}
    return precision_text(plan.precision, types)


def _operand_pointer(node: Gemm, operand: Operand, scope: TritonScope, axes: PlacedAxes, slices: bool) -> str:
    """The start of an operand; one of bytes that are float8 is a pointer to these."""
    text = pointer(scope, axes, operand, () if slices else operand.strides)
    if node.quantised is None or not node.quantised.float8 or operand.buffer.dtype not in ("u8", "i8"):
        return text
    inner = text if text.isidentifier() else f"({text})"
    return f"{inner}.to(tl.pointer_type(tl.float8e4nv), bitcast=True)"


def _sums(node: Gemm) -> dict[str, str]:
    """The sums of a node as the epilogue finds them."""
    if not node.also:
        return {node.acc.name: "acc"}
    return {acc.name: f"acc_{i}" for i, acc in enumerate((node.acc, *(acc for _, acc in node.also)))}


def _parts(
    node: Gemm, tile: GemmTile, scope: TritonScope, axes: PlacedAxes, run: int, inside: bool
) -> tuple[Part, ...]:
    """The accumulators: over parts of the columns, or one for each product."""
    _, b_n = node.unit_strides
    n, size = node.dims[-1].extent, DTYPES[node.b.buffer.dtype].size
    rows, lanes = ("[:, None]", "[None, :]") if tile.vector else ("[None, :]", "[:, None]")
    edge = not divides(tile.n, n)
    slices = tile.descriptors and axes.z.extent != ONE
    cuts = [(node.b, sum(tile.parts[:i]), width) for i, width in enumerate(tile.parts)]
    cuts += [(b, 0, tile.n) for b, _ in node.also]
    found = []
    for i, (operand, offset, width) in enumerate(cuts):
        suffix = "" if len(cuts) == 1 else f"_{i}"
        columns = f"columns{suffix}"
        base = _operand_pointer(node, operand, scope, axes, slices)
        mask = mask_text([f"in_columns{suffix}" if edge else "", f"inside{lanes}" if inside else ""])
        run_lines = lines_of(size, run, "begin", "end - 1") if tile.shared else lines_of(size, run, "", str(run - 1))
        first = f"tl.minimum({columns}, {scalar(scope, n)} - 1)[:, None]" if edge else f"{columns}[:, None]"
        lines = f"{times(first, scope, b_n)} + {run_lines}"
        found.append(Part(suffix, offset, width, base, times(f"{columns}{rows}", scope, b_n), mask, lines))
    return tuple(found)


def lines_of(size: int, run: int, begin: str, last: str) -> str:
    """One element of each line of memory of a run of k that starts at `begin`; none lies behind `last`."""
    step = LINE // size
    width = 1 << max(-(-run // step) - 1, 0).bit_length()
    text = f"{f'{begin} + ' if begin else ''}tl.arange(0, {width}) * {step}"
    return f"tl.minimum({text}, {last})[None, :]" if last or width * step > run else f"({text})[None, :]"


def _casts(node: Gemm) -> tuple[str, ...]:
    """Operands of different types meet in the wider one."""
    a, b = node.a_dtype, node.b.buffer.dtype
    if a == b:
        return ()
    wide = "f32" if "f32" in (a, b) or {a, b} == {"f16", "bf16"} else a
    return tuple(f"{t}_tile = {t}_tile.to({TL_DTYPE[wide]})" for t, own in (("a", a), ("b", b)) if own != wide)
