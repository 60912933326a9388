"""The laws of plans: the primitives that change how a kernel runs and never what it computes.

Each is a field of the plan. Its law says when the values stay. Tests hold the plans of CPU loops to these laws after
every schedule.

vectorize (`vector`, `interleaved`): iterations along one loop run in the lanes of a vector.

    for i: for j: y[i, j] = f(x[i, j])   ->   for i: for j in steps of L: y[i, j:j+L] = f(x[i, j:j+L])

    The loop is one of the stage. Lanes of a map write different elements. Threads may share its vectors, never the
    lanes of one.

unroll and jam (`vertical.unroll`): iterations of a reduced loop are spelled out.

    for j in lanes: for k: a[j] += x[k, j]   ->   for j in lanes: a[j] += x[0, j]; a[j] += x[1, j]; a[j] += x[2, j]

    There is a number for each reduced loop: 0, or at least as many as it has iterations; those beyond are left out.

sliding_window (`windows`): neighbouring windows of a reduction share what they read.

    for r: y[r] = sum over k:T of x[r*s - p + k]   ->   for place: for the windows that hold it: y[r] += x[place]

    Every place is added to each window that holds it once. The windows that are taken to lie inside do so.

pipeline (`pipeline`, the stages of a nest): a stage computes a row while a later stage finishes the row before it.

    for r: { A(r); B(r) }   ->   A(0); for r: { A(r + 1); B(r) }

    Stages are in the order of their pipeline stages (ir/verify.py), and a region has at least one block.

prefetch (`prefetch`, `row_prefetch`): a line of memory comes to a cache before it is read.

    for i: y[i] = x[k[i]]   ->   for i: { prefetch x[k[i + d]]; y[i] = x[k[i]] }

    A prefetch writes nothing and never faults. The kernel reads or writes the buffer, else the line is of no use.

store policy (`nontemporal`, `combined`): results go to memory around the caches, in whole lines.

    for i: y[i] = x[i]   ->   for i in lines: stream y[i:i+16] = x[i:i+16]

    The kernel writes the buffer and does not read it. What is combined is non-temporal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..buffers import Buffer
from ..index import Index, Var
from ..injective import injective
from ..nodes import Map, Nest, Reduce, Scan
from ..verify import BrokenLaw
from .kernel import Kernel
from .loop import Form, LoopPlan, Prefetch

__all__ = ["verify_plan", "verify_plans"]

Stage = Map | Reduce | Scan


def verify_plans(kernels: Iterable[Kernel]) -> None:
    """Raises BrokenLaw with the first kernel whose plan breaks a law."""
    for kernel in kernels:
        verify_plan(kernel)


def verify_plan(kernel: Kernel) -> None:
    """Raises BrokenLaw when the kernel runs loops on a CPU and its plan breaks a law."""
    node, plan = kernel.node, kernel.plan
    if not isinstance(plan, LoopPlan) or not isinstance(node, Map | Reduce | Nest | Scan):
        return
    laws = (_vectorize, _unroll, _sliding_window, _pipeline, _prefetch, _store_policy)
    for law in laws:
        for problem in law(node, plan):
            names = ", ".join(b.name for b in node.writes())
            raise BrokenLaw(f"the plan of the kernel that writes {names}: {problem}")


def _stages(node: Map | Reduce | Nest | Scan) -> tuple[Stage, ...]:
    return node.stages if isinstance(node, Nest) else (node,)


def _loops(stage: Stage) -> tuple[Var, ...]:
    match stage:
        case Reduce():
            return (*stage.dims, *stage.rdims)
        case Scan():
            return (*stage.dims, stage.step)
    return stage.dims


def _vectorize(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> Iterator[str]:
    if plan.form is Form.TRANSPOSED:  # the lanes are those of its own stages
        return
    if len(set(plan.parallel)) != len(plan.parallel):
        yield "a loop is shared out twice"
    for loop in plan.parallel:
        if not _is_outer(loop, node, plan):
            yield f"{loop.name} is shared out, and is no loop over the results"
    for stage, lanes in zip(_stages(node), plan.vector, strict=False):
        if lanes is None:
            continue
        if lanes not in _loops(stage):
            yield f"the lanes run along {lanes.name}, which is no loop of the stage"
        elif isinstance(stage, Map) and not all(_other_elements(s.index, lanes) for s in stage.stores):
            yield f"lanes along {lanes.name} write the same element"
    if plan.interleaved is not None and plan.interleaved not in node.dims:
        yield f"{plan.interleaved.name} is interleaved, and is no loop over the results"


def _is_outer(loop: Var, node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> bool:
    walks = plan.window_walk.walks if plan.window_walk is not None else ()
    return loop in node.dims or loop in walks or (plan.windows is not None and loop == plan.windows.row)


def _other_elements(index: Index, lanes: Var) -> bool:
    """Whether two lanes write other elements, as far as it is known without the values of indices in memory."""
    return lanes in index.vars() and (injective(index, (lanes,)) or len(tuple(index.atoms())) > 1)


def _unroll(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> Iterator[str]:
    for vertical in plan.vertical:
        if vertical is None:
            continue
        if len(vertical.unroll) != len(vertical.inside.rdims):
            yield f"{len(vertical.unroll)} unrolled loops of {len(vertical.inside.rdims)} reduced ones"
        for count, loop in zip(vertical.unroll, vertical.inside.rdims, strict=False):
            if count < 0 or 0 < count < (loop.extent.constant or 0):
                yield f"{count} iterations of {loop.name} are unrolled, which has {loop.extent}"


def _sliding_window(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> Iterator[str]:
    if (plan.form is Form.WINDOWS) != (plan.windows is not None):
        yield "the form of sliding windows and its windows come together"
    w = plan.windows
    if w is None:
        return
    if w.row not in node.dims:
        yield f"windows slide along {w.row.name}, which is no loop over the results"
    if w.taps < 1 or w.step < 1 or not 0 <= w.pad < w.taps:
        yield f"windows of {w.taps} places, step {w.step}, padding {w.pad}"
    if isinstance(node, Reduce) and {f.op for f in w.inner.reductions} != {f.op for f in node.reductions}:
        yield "the windows reduce in another way than the node"


def _pipeline(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> Iterator[str]:
    blocks = plan.pipeline
    if blocks is not None and (blocks.region < 1 or blocks.together < 1):
        yield f"a region of {blocks.region} blocks, {blocks.together} rows together"
    staged = isinstance(node, Nest) and bool(node.pipeline_stages)
    if plan.form in (Form.PIPELINED_COLUMNS, Form.PIPELINED_SAMPLES) and not staged:
        yield "rows are pipelined, and the nest has no pipeline stages"


def _prefetch(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> Iterator[str]:
    known = {b.root for b in (*node.reads(), *node.writes())}
    known |= {b.root for s in _stages(node) for b in (*s.reads(), *s.writes())}
    for prefetch in _prefetches(plan):
        if prefetch.level not in (1, 2, 3) or prefetch.vectors < 0:
            yield f"{prefetch} is no prefetch"
        if prefetch.buffer.root not in known:
            yield f"{prefetch.buffer.name} is fetched and not used"
    if plan.row_prefetch is not None:
        if plan.row_prefetch.distance < 1:
            yield f"rows are fetched {plan.row_prefetch.distance} rows ahead"
        for operand in plan.row_prefetch.operands:
            if operand.buffer.root not in known:
                yield f"rows of {operand.buffer.name} are fetched and not used"


def _prefetches(plan: LoopPlan) -> Iterator[Prefetch]:
    for fetched in plan.prefetch:
        yield from fetched or ()
    for walk in plan.walk:
        yield from walk.prefetch if walk is not None else ()
    for vertical in plan.vertical:
        yield from (*vertical.stream, *vertical.planes) if vertical is not None else ()
    for horizontal in plan.horizontal:
        if horizontal is not None:
            yield from horizontal.prefetch
            yield from horizontal.row_streams.prefetch if horizontal.row_streams is not None else ()
    if plan.window_walk is not None:
        for fetched in plan.window_walk.prefetch:
            yield from fetched


def _store_policy(node: Map | Reduce | Nest | Scan, plan: LoopPlan) -> Iterator[str]:
    written = set(node.writes())
    read = {b.root for s in _stages(node) for b in s.reads()}
    for buffer in plan.nontemporal:
        if buffer not in written:
            yield f"{buffer.name} has non-temporal stores, and the kernel does not write it"
        elif buffer.root in read:
            yield f"{buffer.name} has non-temporal stores, and the kernel reads it"
    nontemporal: set[Buffer] = set(plan.nontemporal)
    for result in plan.combined:
        if result.buffer not in nontemporal:
            yield f"stores to {result.buffer.name} are combined, and are not non-temporal"
        if result.length < 1:
            yield f"rows of {result.length} elements of {result.buffer.name} are combined"
