"""The schedule of a program: fused nodes in order, their memory plan, and the remarks on every fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.plans.kernel import Kernel, Plan
from ..ir.plans.text import plan_text
from ..ir.printer import print_define, print_node
from ..ir.program import AnyNode, Define, Program
from ..machine.gpu import Device
from ..options import ScheduleOptions
from .barriers import in_pieces
from .graph import NodeGraph
from .memory.plan import MemoryPlan, plan_memory
from .names import kernel_name
from .passes import Context, Observer, run_passes
from .planning import plan_kernel
from .regions import in_a_row, scheduled_blocks
from .remarks import Remark, Remarks
from .steps import ChooseStep, RepeatStep, Step, steps_of

DEFAULTS = ScheduleOptions()


@dataclass(frozen=True)
class Schedule:
    """What code generation renders: nodes of `program` are kernels, `steps` says when each runs.

    kernels: each with its plan, in the order of the nodes.
    """

    program: Program
    names: tuple[str, ...]
    memory: MemoryPlan
    remarks: tuple[Remark, ...]
    kernels: tuple[Kernel, ...]

    @property
    def plans(self) -> tuple[Plan | None, ...]:
        return tuple(kernel.plan for kernel in self.kernels)

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
                    plan = plan_text(self.kernels[step].plan)
                    lines += [f"  plan {plan}"] if plan else []
                case Define():
                    lines.append(print_define(step))
                case ChooseStep():
                    parts = (self._lines(step.then), self._lines(step.other))
                    lines += [f"if {step.flag}", *parts[0], "else", *parts[1], "end"]
                case RepeatStep():
                    how = f"{step.iteration} of {step.count} times" if step.iteration else f"while {step.flag}"
                    lines += [f"repeat {how}", *self._lines(step.test), *(["do"] if step.test else [])]
                    lines += [*self._lines(step.body), "end"]
        return lines


def schedule(
    program: Program,
    options: ScheduleOptions = DEFAULTS,
    device: Device | None = None,
    observer: Observer | None = None,
) -> Schedule:
    """Fuses and orders a program.

    Args:
        program: what lowering made, for the same family of targets.
        options: passes that are switched off; without `options.fuse` every node is a kernel.
        device: the GPU to schedule for; None: a CPU.
        observer: told of each pass that changed nodes.
    """
    context, off = Context(Remarks(), device), options.switched_off

    def scheduled(piece: Program) -> tuple[AnyNode, ...]:
        graph = NodeGraph(piece)
        run_passes(graph, context, off, options.fuse, observer)
        return scheduled_blocks(piece, graph.nodes, lambda block: in_pieces(block, scheduled).nodes)

    result = in_a_row(in_pieces(program, scheduled))
    names = tuple(kernel_name(n, context.family) for n in result.nodes)
    memory = plan_memory(result.nodes, result.defines, result.regions, reuse=device is None)
    kernels = tuple(plan_kernel(n, context, off=off) for n in result.nodes)
    return Schedule(result, names, memory, context.remarks.rows(result.nodes), kernels)
