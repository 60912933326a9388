"""The schedule of a program: fused nodes in order, their memory plan, and the remarks on every fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.buffers import Buffer
from ..ir.expr import Acc
from ..ir.nodes import Map, Reduce
from ..ir.printer import print_define, print_node
from ..ir.program import AnyNode, Define, Program
from ..machine.targets import Family
from ..options import ScheduleOptions
from .algebra.blocked_variance import split_moments
from .algebra.online_softmax import split_exponentials
from .algebra.rfactor import split_reductions
from .algebra.rfactor_samples import split_sample_folds
from .algebra.split_k_cpu import split_long_products
from .algebra.welford import fold_spreads
from .barriers import in_pieces
from .fusion.concat_distribution import split_at_pieces
from .fusion.conv_chains import fuse_chains
from .fusion.epilogue import fuse_epilogues
from .fusion.glu import fuse_pairs
from .fusion.groups import cut_groups
from .fusion.horizontal import join_folds
from .fusion.inline import inline_lookups, inline_maps
from .fusion.kv_concat import join_keys
from .fusion.lookups import fuse_lookups
from .fusion.prologue import fuse_prologues
from .fusion.reduction_cse import join_equal_folds
from .fusion.rows import MAX_LOCAL_BYTES, fuse_columns, fuse_rows
from .fusion.terms import keep_terms
from .gpu.few_rows import device_rewrites
from .graph import NodeGraph
from .loops.interchange_copies import order_moves
from .loops.interchange_reductions import fold_as_read
from .loops.interchange_stores import order_loops
from .loops.operand_layout import turn_operands
from .loops.pipeline_columns import pipeline_columns
from .loops.pipeline_rows import pipeline_rows
from .loops.pipeline_samples import walk_samples
from .loops.row_form import MAX_ROW, separate_rows
from .loops.separable_windows import split_windows
from .loops.unroll_reductions import write_out_folds
from .memory.plan import MemoryPlan, plan_memory
from .names import kernel_name
from .regions import in_a_row, scheduled_blocks
from .remarks import Remark, Remarks
from .steps import ChooseStep, RepeatStep, Step, steps_of

DEFAULTS = ScheduleOptions()


@dataclass(frozen=True)
class Schedule:
    """What code generation renders: nodes of `program` are kernels, `steps` says when each runs."""

    program: Program
    names: tuple[str, ...]
    memory: MemoryPlan
    remarks: tuple[Remark, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return steps_of(len(self.names), self.program.defines, self.program.regions)

    def __str__(self) -> str:
        lines = self._lines(self.steps)
        for i, t in enumerate(self.memory.lifetimes):
            offset = f" @ arena+{self.memory.offsets[i]}" if self.memory.offsets is not None else ""
            lines.append(
                f"buffer {t.buffer.name}: {t.buffer.dtype}[{t.buffer.size}] kernels {t.first}..{t.last}{offset}"
            )
        lines += [f"buffer {b.name}: over {under.name}" for b, under in self.memory.over.items()]
        return "\n".join(lines) + "\n"

    def _lines(self, steps: Sequence[Step]) -> list[str]:
        lines: list[str] = []
        for step in steps:
            match step:
                case int():
                    lines.append(f"kernel {self.names[step]}\n{print_node(self.program.nodes[step])}")
                case Define():
                    lines.append(print_define(step))
                case ChooseStep():
                    parts = (self._lines(step.then), self._lines(step.other))
                    lines += [f"if {step.flag}", *parts[0], "else", *parts[1], "end"]
                case RepeatStep():
                    how = f"{step.turn} of {step.count} times" if step.turn else f"while {step.flag}"
                    lines += [f"repeat {how}", *self._lines(step.test), *(["do"] if step.test else [])]
                    lines += [*self._lines(step.body), "end"]
        return lines


def schedule(program: Program, options: ScheduleOptions = DEFAULTS, family: Family = "cpu") -> Schedule:
    """Fuses and orders a program; without `options.fuse` every node is a kernel (to find what a fusion breaks)."""
    remarks = Remarks()
    result = in_a_row(in_pieces(program, lambda piece: _scheduled(piece, remarks, options, family)))
    names = tuple(kernel_name(n, family) for n in result.nodes)
    memory = plan_memory(result.nodes, result.defines, result.regions, reuse=family == "cpu")
    return Schedule(result, names, memory, remarks.rows(result.nodes))


def _scheduled(program: Program, remarks: Remarks, options: ScheduleOptions, family: Family) -> tuple[AnyNode, ...]:
    graph = NodeGraph(program)
    remove_dead(graph)
    join_equal_folds(graph)
    if family == "cuda":
        device_rewrites(graph)
    else:
        split_long_products(graph)
    if options.fuse:
        inline_maps(graph, remarks, recompute=False)  # chains become one expression ...
        if family == "cpu":
            join_keys(graph, remarks)
        if options.epilogues:
            fuse_epilogues(graph, remarks, family)  # ... that ends in the kernel that makes its operand
        if family == "cpu":
            write_out_folds(graph, remarks)
        inline_maps(graph, remarks, recompute=True)  # what is cheap is computed again rather than stored
        if options.epilogues:
            fuse_epilogues(graph, remarks, family)
            if family == "cpu":
                fuse_pairs(graph, remarks, family)
        if family == "cpu":
            split_at_pieces(graph, remarks)
            cut_groups(graph)  # so that they are rows
            fold_spreads(graph)
            split_moments(graph)
            split_exponentials(graph)
            split_sample_folds(graph)
            walk_samples(graph, remarks)
            fuse_columns(graph, remarks)
            fold_as_read(graph)
            split_reductions(graph)  # those that are alone
        else:
            inline_maps(graph, remarks, recompute=True)  # chains that grew in the pass before
            inline_lookups(graph, remarks)
            if options.epilogues:
                fuse_pairs(graph, remarks, family)
        # needs the epilogues: what is left are rows
        fuse_rows(graph, remarks, MAX_LOCAL_BYTES if family == "cpu" else MAX_ROW * 8, turns=family == "cuda")
        if family == "cpu":
            fuse_lookups(graph, remarks)
            keep_terms(graph)
            join_folds(graph)
            pipeline_columns(graph)
            pipeline_rows(graph)
            if options.epilogues:
                fuse_chains(graph, remarks)  # what they make inside is finished by then
            turn_operands(graph)
            order_loops(graph)
            order_moves(graph)
            split_windows(graph)
        elif options.prologues:
            fuse_prologues(graph, remarks)  # maps that have not become a part of rows or of an epilogue
    if family == "cuda":
        separate_rows(graph, remarks)
    inside = lambda piece: _scheduled(piece, remarks, options, family)  # noqa: E731
    return scheduled_blocks(program, graph.nodes, lambda block: in_pieces(block, inside).nodes)


def remove_dead(graph: NodeGraph) -> None:
    """Drops nodes whose results nobody reads, and such results of nodes that have others."""
    for node in reversed(list(graph.nodes)):
        dead = {b for b in node.writes() if b.kind == "temp" and not graph.readers(b)}
        if len(dead) == len(node.writes()):
            graph.remove(node)
        elif dead and isinstance(node, Map | Reduce):
            graph.replace(node, _without(node, dead))


def _without(node: Map | Reduce, dead: set[Buffer]) -> Map | Reduce:
    """The node without some of its results, and without the folds that were theirs alone."""
    changed = replace(node, stores=tuple(s for s in node.stores if s.buffer not in dead))
    if isinstance(changed, Reduce):
        asked = {e for s in changed.stores for e in s.value.walk() if isinstance(e, Acc)}
        changed = replace(changed, folds=tuple(f for f in changed.folds if f.acc in asked))
    return changed
