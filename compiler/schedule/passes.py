"""The passes of the schedule in their order: a list for CPUs and a list for GPUs, and the driver that runs them.

Each row says what a pass needs and what it establishes; compiler/pass_order.py holds a list to that:

    LIVE        every result is read                    UNIQUE      no reduction is computed twice
    EXPRESSIONS chains of maps are one expression       EPILOGUES   products and convolutions finish their elements
    SPLIT       long reductions are cut into pieces     ROWS        what shares its rows is one nest
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...runtime.errors import CompileError
from ..ir.program import AnyNode
from ..machine.cpu_loops import FUSIONS
from ..machine.gpu import Device
from ..machine.targets import Family
from .algebra.blocked_variance import block_variances
from .algebra.column_sums import join_column_sums
from .algebra.one_hot import look_up_one_hot
from .algebra.online_softmax import make_softmax_online
from .algebra.rfactor import split_reductions
from .algebra.rfactor_gpu import rfactor_rows
from .algebra.rfactor_samples import rfactor_samples
from .algebra.split_k_cpu import split_k
from .algebra.split_k_gpu import split_products
from .algebra.welford import combine_by_welford
from .fusion.concat_distribution import distribute_concats
from .fusion.conv_chains import fuse_chains
from .fusion.dead_results import remove_dead
from .fusion.early_casts import round_early
from .fusion.epilogue import fuse_epilogues
from .fusion.glu import fuse_glu
from .fusion.groups import cut_groups
from .fusion.horizontal import fuse_horizontally
from .fusion.inline import inline_lookups, inline_maps
from .fusion.joined_maps import join_maps, join_numbers
from .fusion.kv_blocks import read_through_tables
from .fusion.kv_concat import eliminate_kv_concats
from .fusion.late_updates import update_late
from .fusion.lookups import fuse_lookups
from .fusion.narrow_results import narrow_results
from .fusion.prologue import fuse_prologues
from .fusion.reduction_cse import eliminate_equal_reductions
from .fusion.rows import fuse_columns, fuse_rows
from .fusion.terms import keep_terms
from .graph import NodeGraph
from .loops.interchange_copies import interchange_copies
from .loops.interchange_reductions import interchange_reductions
from .loops.interchange_stores import interchange_stores
from .loops.operand_layout import transpose_operands
from .loops.pipeline_columns import pipeline_columns
from .loops.pipeline_rows import pipeline_rows
from .loops.pipeline_samples import pipeline_samples
from .loops.row_form import separate_rows
from .loops.separable_windows import split_windows
from .loops.unroll_reductions import unroll_reductions
from .matrix.padded_rows import pad_rows
from .remarks import Remarks


@dataclass(frozen=True)
class Context:
    """What a pass may ask besides the graph. device: the GPU to schedule for; None: a CPU."""

    remarks: Remarks
    device: Device | None = None

    @property
    def family(self) -> Family:
        """Which kind of target it is for: "cpu", or "cuda" where the context has a device."""
        return "cpu" if self.device is None else "cuda"

    @property
    def gpu(self) -> Device:
        """The device of a context for a GPU, and no other."""
        assert self.device is not None
        return self.device


@dataclass(frozen=True)
class SchedulePass:
    """A pass: its name, its function, and its facts (see compiler/pass_order.py).

    required: code generation counts on it, or it has nothing to do with fusion: it runs without `schedule.fuse` too.
    """

    name: str
    run: Callable[[NodeGraph, Context], None]
    needs: frozenset[str] = frozenset()
    establishes: frozenset[str] = frozenset()
    undoes: frozenset[str] = frozenset()
    required: bool = False


#: called after a pass that changed nodes: its name, and the nodes before and after it
Observer = Callable[[str, Sequence[AnyNode], Sequence[AnyNode]], None]


def _row(
    name: str,
    run: Callable[[NodeGraph, Context], None],
    needs: str = "",
    establishes: str = "",
    undoes: str = "",
    required: bool = False,
) -> SchedulePass:
    first, second, third = (frozenset(text.split()) for text in (needs, establishes, undoes))
    return SchedulePass(name, run, first, second, third, required)


_LIVE = _row("dead-results", lambda g, c: remove_dead(g), establishes="LIVE", required=True)
_UNIQUE = _row(
    "reduction-cse", lambda g, c: eliminate_equal_reductions(g), needs="LIVE", establishes="UNIQUE", required=True
)
_ONCE = _row("inline", lambda g, c: inline_maps(g, c.remarks, False), "UNIQUE", "EXPRESSIONS")
#: what is cheap is computed again rather than stored
_AGAIN = _row("recompute", lambda g, c: inline_maps(g, c.remarks, True, c.device), "EXPRESSIONS")
_EPILOGUES = _row("epilogues", lambda g, c: fuse_epilogues(g, c.remarks, c.device), "EXPRESSIONS", "EPILOGUES")
_GLU = _row("glu", lambda g, c: fuse_glu(g, c.remarks, c.family), "EPILOGUES")

_BLOCKS = _row("kv-blocks", lambda g, c: read_through_tables(g, c.remarks), "EXPRESSIONS")

CPU_PASSES: tuple[SchedulePass, ...] = (
    _LIVE,
    _UNIQUE,
    _row("split-k", lambda g, c: split_k(g), "LIVE", required=True),
    # chains become one expression, that ends in the kernel that makes its operand
    _ONCE,
    _row("kv-concat", lambda g, c: eliminate_kv_concats(g, c.remarks), "EXPRESSIONS"),
    _BLOCKS,
    _EPILOGUES,
    _row("unroll-reductions", lambda g, c: unroll_reductions(g, c.remarks), "EXPRESSIONS"),
    _AGAIN,
    _EPILOGUES,
    _GLU,
    _row("concat-distribution", lambda g, c: distribute_concats(g, c.remarks), "EPILOGUES"),
    # in front of the rows, which groups become
    _row("groups", lambda g, c: cut_groups(g), "EPILOGUES"),
    _row("welford", lambda g, c: combine_by_welford(g), "EPILOGUES", "SPLIT"),
    _row("blocked-variance", lambda g, c: block_variances(g), "EPILOGUES", "SPLIT"),
    _row("online-softmax", lambda g, c: make_softmax_online(g), "EPILOGUES", "SPLIT"),
    _row("rfactor-samples", lambda g, c: rfactor_samples(g), "EPILOGUES", "SPLIT"),
    _row("pipeline-samples", lambda g, c: pipeline_samples(g, c.remarks), "SPLIT"),
    _row("fuse-columns", lambda g, c: fuse_columns(g, c.remarks), "EPILOGUES"),
    _row("interchange-reductions", lambda g, c: interchange_reductions(g), "EPILOGUES"),
    # behind the passes that cut reductions together with their readers: these are alone
    _row("rfactor", lambda g, c: split_reductions(g), "SPLIT"),
    # behind the epilogues: what is left are rows
    _row("fuse-rows", lambda g, c: fuse_rows(g, c.remarks, FUSIONS.local_bytes), "EPILOGUES SPLIT", "ROWS"),
    _row("lookups", lambda g, c: fuse_lookups(g, c.remarks), "ROWS"),
    _row("terms", lambda g, c: keep_terms(g), "ROWS"),
    _row("horizontal", lambda g, c: fuse_horizontally(g), "ROWS"),
    _row("pipeline-columns", lambda g, c: pipeline_columns(g), "ROWS"),
    _row("pipeline-rows", lambda g, c: pipeline_rows(g), "ROWS"),
    # behind all that changes what a convolution makes inside
    _row("conv-chains", lambda g, c: fuse_chains(g, c.remarks), "ROWS EPILOGUES"),
    _row("operand-layout", lambda g, c: transpose_operands(g), "ROWS"),
    _row("interchange-stores", lambda g, c: interchange_stores(g), "ROWS"),
    _row("interchange-copies", lambda g, c: interchange_copies(g), "ROWS"),
    _row("separable-windows", lambda g, c: split_windows(g), "ROWS"),
)

GPU_PASSES: tuple[SchedulePass, ...] = (
    _LIVE,
    _UNIQUE,
    _row("column-sums", lambda g, c: join_column_sums(g, c.gpu.splits), "LIVE"),
    _row("rfactor", lambda g, c: rfactor_rows(g, c.gpu.splits), "LIVE", "SPLIT", required=True),
    _row("split-k", lambda g, c: split_products(g, c.gpu), "LIVE", required=True),
    _row("late-updates", lambda g, c: update_late(g, c.gpu.fusions.late), "SPLIT"),
    _ONCE,
    # where a chain ends in numbers of 16 bits that are widened, in front of the epilogues, which store them
    _row("narrow-results", lambda g, c: narrow_results(g, c.remarks), "EXPRESSIONS"),
    _BLOCKS,
    _EPILOGUES,
    _AGAIN,
    _EPILOGUES,
    _AGAIN,  # chains that grew in the pass before
    _row("one-hot", lambda g, c: look_up_one_hot(g), "EXPRESSIONS"),
    _row("inline-lookups", lambda g, c: inline_lookups(g, c.remarks, c.gpu), "EXPRESSIONS"),
    _GLU,
    _row("fuse-rows", lambda g, c: fuse_rows(g, c.remarks, c.gpu.rows.held * 8, True), "EPILOGUES SPLIT", "ROWS"),
    _row("join-maps", lambda g, c: join_maps(g, c.remarks), "ROWS EPILOGUES"),
    _row("join-numbers", lambda g, c: join_numbers(g, c.remarks, c.gpu.fusions.numbers), "EXPRESSIONS"),
    # maps that have not become a part of rows or of an epilogue
    _row("prologues", lambda g, c: fuse_prologues(g, c.remarks, c.gpu), "ROWS EPILOGUES"),
    _row("early-casts", lambda g, c: round_early(g, c.gpu.maps.together), "ROWS EPILOGUES"),
    # behind all that decides which operands lie in memory
    _row("padded-rows", lambda g, c: pad_rows(g, c.remarks, c.gpu), "ROWS EPILOGUES"),
    _row("separate-rows", lambda g, c: separate_rows(g, c.remarks, c.gpu.rows), required=True),
)  # fmt: skip


def passes_for(device: Device | None) -> tuple[SchedulePass, ...]:
    """The list for a GPU, or for CPUs."""
    return CPU_PASSES if device is None else GPU_PASSES


def optional_passes() -> tuple[str, ...]:
    """Names of the passes that can be switched off, each once."""
    return tuple(dict.fromkeys(p.name for p in (*CPU_PASSES, *GPU_PASSES) if not p.required))


def check_names(names: Collection[str], planning: Collection[str] = ()) -> None:
    """Raises CompileError when one of the names is no pass that can be switched off.

    planning: names of planning passes that can be.
    """
    known = (*optional_passes(), *sorted(planning))
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"Did you mean {near[0]}?" if near else f"Passes: {', '.join(known)}."
            raise CompileError(f"schedule.off names no pass that can be left out: '{name}'", hint=hint)


def run_passes(
    graph: NodeGraph, context: Context, off: Collection[str] = (), fuse: bool = True, observer: Observer | None = None
) -> None:
    """Runs the passes of a target on a piece of a program.

    off: names of passes to leave out. fuse: False leaves all out but the required ones. observer: told of each pass
    that changed the nodes.
    """
    for row in passes_for(context.device):
        if not row.required and (row.name in off or not fuse):
            continue
        before = tuple(graph.nodes)
        try:
            row.run(graph, context)
        except Exception as error:
            error.add_note(f"in schedule pass {row.name}")
            raise
        after = tuple(graph.nodes)
        if observer is not None and not same_nodes(before, after):
            observer(row.name, before, after)


def same_nodes(a: Sequence[AnyNode], b: Sequence[AnyNode]) -> bool:
    """Whether they are the same objects in the same order."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
