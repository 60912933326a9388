"""The planning passes of loops: each takes a kernel and decides one field of its plan, or rewrites its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.dtypes import DTYPES
from ...ir.index import Var
from ...ir.nodes import Map, Nest, Reduce, Scan
from ...ir.plans.kernel import Kernel
from ...ir.plans.loop import (
    ColumnWalk,
    CombinedResult,
    Form,
    HorizontalPlan,
    LoopPlan,
    PipelineBlocks,
    Prefetch,
    ReductionKind,
    RowPrefetch,
    SlidingWindows,
    TilePlan,
    TransposedRows,
    VerticalPlan,
    WindowWalk,
)
from ...machine.cpu_loops import ROW_LOOPS
from .base_offsets import with_base_offsets
from .collapse import collapse, collapse_rows
from .column_walks import column_walks
from .fma_contraction import with_fma
from .horizontal_reductions import horizontal_plans
from .interleave import interleave_stores
from .pipeline_blocks import blocks_of
from .prefetch_stages import stage_prefetches
from .row_prefetch import jumping_reads, looked_up, reads_on, row_prefetch, row_reads, short_reads
from .scan_form import lies_in_columns, scan_form
from .share_rows import in_shared_pieces
from .short_rows import without_short_rows
from .sliding_window import find_sliding_windows
from .stage_lanes import reductions, rows_of, scan_axes, stage_lanes, vector_axes
from .store_policy import aligned_lines, nontemporal_results, peels
from .tiles import tile_plan
from .transpose_rows import transposed_rows
from .vector_axis import cross_loop, reduces_columns
from .vertical_reductions import vertical_plans
from .window_walks import window_walk
from .write_combining import Stage, combined_results

Loops = Map | Reduce | Nest | Scan

#: kept loops from which on the last one stays inside of a thread
INSIDE = 3


def loops_of(kernel: Kernel) -> tuple[Loops, LoopPlan]:
    """The node and the plan of a kernel of loops."""
    assert isinstance(kernel.node, Loops)
    assert isinstance(kernel.plan, LoopPlan)
    return kernel.node, kernel.plan


# rewrites of the node -----------------------------------------------------------------------------------------------
def hoist_base_offsets(kernel: Kernel) -> Kernel:
    """Where buffers begin is left to the host program."""
    node, base_offsets = with_base_offsets(kernel.node)
    return replace(kernel, node=node, base_offsets=tuple(base_offsets.items()))


def contract_products(kernel: Kernel) -> Kernel:
    """Products that one sum reads are not rounded (fma)."""
    return replace(kernel, node=with_fma(kernel.node))


def collapse_loops(kernel: Kernel) -> Kernel:
    """Loops that all accesses walk through like one become one, but for those of pipelines and transposed rows."""
    node, plan = loops_of(kernel)
    if isinstance(node, Scan):
        merged = collapse(node)
        return replace(kernel, node=merged) if lies_in_columns(merged) else kernel
    if plan.transposed is not None:
        return kernel
    if not isinstance(node, Nest):
        return replace(kernel, node=collapse(node))
    node = collapse_rows(node)
    if not node.pipeline_stages:
        node = replace(node, stages=tuple(collapse(stage, keep=rows_of(node, stage)) for stage in node.stages))
    return replace(kernel, node=node)


def share_rows(kernel: Kernel) -> Kernel:
    """Few long rows of a reduction are cut into pieces that threads share out."""
    node, plan = loops_of(kernel)
    if not isinstance(node, Reduce) or plan.windows is not None or plan.transposed is not None:
        return kernel
    return replace(kernel, node=in_shared_pieces(node, stage_lanes(node)))


def interleave(kernel: Kernel) -> Kernel:
    """A short innermost loop of a map becomes stores side by side; the field says along which loop the lanes run."""
    node, plan = loops_of(kernel)
    found = interleave_stores(node) if isinstance(node, Map) else None
    if found is None:
        return kernel
    return Kernel(found[0], replace(plan, interleaved=found[1]), kernel.base_offsets)


def join_short_rows(kernel: Kernel) -> Kernel:
    """Rows of a map that fill no vector become one loop with the one around them."""
    node, plan = loops_of(kernel)
    if not isinstance(node, Map) or plan.interleaved is not None:
        return kernel
    return replace(kernel, node=without_short_rows(node))


# fields of the plan -------------------------------------------------------------------------------------------------
def transposed(kernel: Kernel) -> TransposedRows | None:
    """Short rows in blocks that are transposed for SIMD across rows."""
    node, _ = loops_of(kernel)
    return transposed_rows(node) if isinstance(node, Reduce | Nest) else None


def windows(kernel: Kernel) -> SlidingWindows | None:
    """A reduction over windows that overlap."""
    node, plan = loops_of(kernel)
    return find_sliding_windows(node) if isinstance(node, Reduce) and plan.transposed is None else None


def form(kernel: Kernel) -> Form:
    """How the loops lie around each other."""
    node, plan = loops_of(kernel)
    if isinstance(node, Scan):
        return scan_form(node)
    if plan.transposed is not None:
        return Form.TRANSPOSED
    if isinstance(node, Nest):
        return _nest_form(node)
    if plan.windows is not None:
        return Form.WINDOWS
    lanes = plan.interleaved or stage_lanes(node)
    if lanes is None:
        return Form.ROWS
    if isinstance(node, Reduce):
        return Form.COLUMNS if reduces_columns(node, lanes) else Form.ROWS
    if node.dims == (lanes,):
        return Form.FLAT
    crosses = plan.interleaved is None and cross_loop(node, lanes) is not None
    return Form.TILES if crosses else Form.ROWS


def _nest_form(node: Nest) -> Form:
    if node.walk is not None:
        return Form.PIPELINED_SAMPLES
    if not node.pipeline_stages:
        return Form.ROWS
    along = all(s.dims == node.dims for s in node.stages if isinstance(s, Reduce))
    return Form.PIPELINED_ROWS if along else Form.PIPELINED_COLUMNS


def vector(kernel: Kernel) -> tuple[Var | None, ...]:
    """The loop along the lanes of each stage."""
    node, plan = loops_of(kernel)
    if isinstance(node, Scan):
        return scan_axes(node, plan.form)
    if plan.form in (Form.TRANSPOSED, Form.WINDOWS):
        return ()
    return (plan.interleaved,) if plan.interleaved is not None else vector_axes(node, plan.form)


def tile(kernel: Kernel) -> TilePlan | None:
    """The blocks of a map that transposes operands."""
    node, plan = loops_of(kernel)
    lanes = plan.vector[0] if plan.form is Form.TILES else None
    if lanes is None or not isinstance(node, Map):
        return None
    found = cross_loop(node, lanes)
    assert found is not None
    return tile_plan(node, lanes, found)


def nontemporal(kernel: Kernel) -> tuple[Buffer, ...]:
    """Results that are written by non-temporal stores."""
    node, plan = loops_of(kernel)
    return nontemporal_results(node, plan.form)


def whole_lines_alone(kernel: Kernel) -> bool:
    """Whether non-temporal vectors have to be whole lines."""
    return aligned_lines(loops_of(kernel)[0])


def parallel(kernel: Kernel) -> tuple[Var, ...]:
    """The loops that threads share out."""
    node, plan = loops_of(kernel)
    if isinstance(node, Nest | Scan):
        return node.dims
    if plan.form is Form.TRANSPOSED:
        return ()
    if plan.window_walk is not None:
        return plan.window_walk.walks
    (lanes,) = plan.vector
    kept = tuple(v for v in node.dims if v is not lanes and (plan.tile is None or v is not plan.tile.cross))
    if plan.form is not Form.ROWS:
        return kept
    if (block := _block_of_rows(node, plan, kept)) is not None:
        return block
    if isinstance(node, Map) and lanes is not None and jumping_reads(node, lanes, kept):
        return kept
    return kept[:-1] if len(kept) >= INSIDE and lanes in node.dims else kept


def _block_of_rows(node: Map | Reduce, plan: LoopPlan, kept: Sequence[Var]) -> tuple[Var, ...] | None:
    """The parallel loops where short rows are gathered together, the last loop around them inside: what a row costs
    beside its elements counts. None: they are long, or the hardware does not find what is read for them."""
    (lanes,) = plan.vector
    if not isinstance(node, Map) or len(kept) < 2 or lanes is None:
        return None
    row = (lanes.extent.constant or ROW_LOOPS.copied_bytes) * max(DTYPES[s.buffer.dtype].size for s in node.stores)
    stage, block = Stage(node, lanes), tuple(kept[:-1])
    if row >= ROW_LOOPS.copied_bytes or not reads_on(stage, block, kept[-1]):
        return None
    return block if combined_results([stage], block, plan.nontemporal) else None


def combined(kernel: Kernel) -> tuple[CombinedResult, ...]:
    """Results whose lines are put together in a cache before they are written."""
    node, plan = loops_of(kernel)
    if not plan.nontemporal:
        return ()
    if plan.window_walk is not None and plan.windows is not None and isinstance(node, Reduce):
        whole = plan.window_walk.block is None and len(plan.parallel) == len(node.dims) - 2
        written = [Stage(node, plan.windows.lanes)]
        return combined_results(written, plan.parallel, plan.nontemporal) if whole else ()
    if plan.form not in (Form.ROWS, Form.PIPELINED_ROWS, Form.SCAN_LANES):
        return ()
    return combined_results(stages_of(node, plan), plan.parallel, plan.nontemporal)


def stages_of(node: Loops, plan: LoopPlan) -> list[Stage]:
    """The stages of a kernel, each with the loop of its lanes, and its pipeline stage where rows have pipeline
    stages."""
    if not isinstance(node, Nest):
        return [Stage(node, plan.vector[0])]
    if plan.form is Form.PIPELINED_ROWS:
        lane = next(s for s in node.stages if isinstance(s, Reduce)).rdims[0]
        pairs = zip(node.stages, node.pipeline_stages, strict=True)
        return [Stage(s, lane if lane in s.dims else None, pipeline_stage) for s, pipeline_stage in pairs]
    return [Stage(*pair) for pair in zip(node.stages, plan.vector, strict=True)]


def prefetched_rows(kernel: Kernel) -> RowPrefetch | None:
    """Rows of operands that the hardware does not find, or not soon enough."""
    node, plan = loops_of(kernel)
    if plan.form is Form.SCAN_LANES:
        return row_prefetch(short_reads(stages_of(node, plan), plan.parallel)) if plan.combined else None
    if plan.form is not Form.ROWS or isinstance(node, Scan):
        return None
    stages = stages_of(node, plan)
    if isinstance(node, Nest):
        if plan.combined:
            return row_prefetch(short_reads(stages, plan.parallel))
        return looked_up(stages, plan.parallel) if plan.parallel else None
    if isinstance(node, Reduce):
        vertical = plan.reduction == (ReductionKind.VERTICAL,)
        return row_prefetch(short_reads(stages, plan.parallel)) if plan.combined or vertical else None
    return _prefetched_by_map(node, plan)


def _prefetched_by_map(node: Map, plan: LoopPlan) -> RowPrefetch | None:
    (lanes,) = plan.vector
    if lanes is None:
        return None
    kept = [v for v in node.dims if v is not lanes]
    if len(plan.parallel) == len(kept) and (reads := jumping_reads(node, lanes, kept)):
        return row_prefetch(reads)
    if plan.combined and _block_of_rows(node, plan, kept) is None:
        return row_prefetch(row_reads([Stage(node, lanes)], plan.parallel))
    return None


def reduction_kinds(kernel: Kernel) -> tuple[ReductionKind | None, ...]:
    """How each stage reduces."""
    node, plan = loops_of(kernel)
    return reductions(node, plan.vector)


def peel(kernel: Kernel) -> tuple[bool, ...]:
    """Whether each stage peels a part of a vector, so that the others are aligned."""
    return peels(*loops_of(kernel))


def prefetch(kernel: Kernel) -> tuple[tuple[Prefetch, ...] | None, ...]:
    """What each stage prefetches."""
    node, plan = loops_of(kernel)
    return () if isinstance(node, Scan) else stage_prefetches(node, plan)


def walk(kernel: Kernel) -> tuple[ColumnWalk | None, ...]:
    """How rows of memory are walked over that lie across the lanes of a stage."""
    found = column_walks(*loops_of(kernel))
    return found if any(found) else ()


def vertical(kernel: Kernel) -> tuple[VerticalPlan | None, ...]:
    """Unrolling, strips and fetches of the stages in which every lane reduces for itself."""
    found = vertical_plans(*loops_of(kernel))
    return found if any(found) else ()


def horizontal(kernel: Kernel) -> tuple[HorizontalPlan | None, ...]:
    """Pieces, streams and fetches of the stages that reduce along their lanes."""
    found = horizontal_plans(*loops_of(kernel))
    return found if any(found) else ()


def walk_windows(kernel: Kernel) -> WindowWalk | None:
    """How sliding windows walk over memory."""
    node, plan = loops_of(kernel)
    if plan.form is not Form.WINDOWS or plan.windows is None or not isinstance(node, Reduce):
        return None
    return window_walk(node, plan.windows, plan.nontemporal)


def pipeline_blocks(kernel: Kernel) -> PipelineBlocks | None:
    """Regions of pipelined columns."""
    node, plan = loops_of(kernel)
    return blocks_of(node) if plan.form is Form.PIPELINED_COLUMNS and isinstance(node, Nest) else None
