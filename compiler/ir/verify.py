"""The laws of the loop IR. Run after every stage in tests, and between scheduling passes on request."""

from __future__ import annotations

from collections.abc import Iterator

from .buffers import IN_PLACE, Buffer
from .dtypes import DTYPES
from .expr import Acc, Call, Const, Expr, IndexValue, Load
from .in_place import over_own_elements
from .index import ZERO, Binary, Index, Indirect, Var
from .nodes import Map, Nest, Node, Reduce, Scan, Scatter, Store
from .ops import OPS
from .printer import print_node
from .program import AnyNode, Assert, Choose, Program, Repeat
from .proofs import nonnegative_by_cases
from .routines import Custom, Routine
from .structured import Attention, AttentionGradient, Conv, ConvChain, Gemm


class BrokenLaw(AssertionError):
    """The IR is wrong: which law, and the nodes around the place."""


def verify_program(program: Program, after: str = "") -> None:
    """Raises BrokenLaw with the neighbourhood of the first node that breaks a law; `after` names the pass that ran."""
    written: set[Buffer] = {*program.inputs, *program.state}
    _verify_block(program, written, {}, after)
    for output in program.outputs:
        if output not in written:
            raise BrokenLaw(f"output {output.name} is never written" + (f" (after {after})" if after else ""))


def _verify_block(program: Program, written: set[Buffer], latest: dict[Buffer, Buffer], after: str) -> None:
    """The nodes of a program, and of the blocks inside them; enters what is written."""
    for position, node in enumerate(program.nodes):
        for problem in (*_order(node, written), *_in_place(node, latest), *_node(node, ())):
            raise BrokenLaw(_report(program, position, problem, after))
        if isinstance(node, (Choose, Repeat)):
            for block in node.blocks:
                _verify_block(program.with_nodes(block), set(written), dict(latest), after)
        written.update(node.writes())
        latest.update({b.root: b for b in node.writes()})


def broken_laws(node: Node) -> list[str]:
    """What is wrong with a node by itself."""
    return list(_node(node, ()))


def _report(program: Program, position: int, problem: str, after: str) -> str:
    first, last = max(position - 4, 0), position + 5
    lines = [f"{problem}" + (f" (after {after})" if after else "")]
    for i, node in enumerate(program.nodes[first:last], first):
        lines.append(("> " if i == position else "  ") + print_node(node, "").replace("\n", "\n  "))
    return "\n".join(lines)


def _order(node: AnyNode, written: set[Buffer]) -> Iterator[str]:
    for buffer in node.reads():
        if buffer.kind not in ("const", "local") and buffer not in written:
            yield f"{buffer.name} is read before it is written"
    for buffer in node.writes():
        if buffer.kind in ("input", "const"):
            yield f"{buffer.name} is an {buffer.kind} and is written"


def _in_place(node: AnyNode, latest: dict[Buffer, Buffer]) -> Iterator[str]:
    """A value is read only as long as nothing is written over it."""
    for buffer in node.reads():
        if buffer.kind in IN_PLACE and latest.get(buffer.root, buffer.root) is not buffer:
            yield f"{buffer.name} is read after {latest[buffer.root].name} was written over it"
    if not over_own_elements(node):
        yield "elements are read that the node writes over at another iteration"


def _node(node: Node, outer: tuple[Var, ...]) -> Iterator[str]:
    names = [v.name for v in node.dims]
    if len(set(names)) != len(names):
        yield f"two loops are called alike: {', '.join(names)}"
    scope = set(node.dims) | set(outer)
    match node:
        case Map() | Gemm() | Conv():
            accs = {node.acc} if isinstance(node, (Gemm, Conv)) else set()
            if isinstance(node, Gemm):
                accs |= {acc for _, acc in node.also}
                yield from _quantised(node)
                if (prologue := node.prologue) is not None:
                    inner = (scope - {node.dims[-1]}) | {prologue.depth}
                    yield from _expression(prologue.value, inner, {prologue.acc})
            yield from _stores(node.stores, scope, accs)
        case ConvChain():
            for link, made in zip(node.links, (*node.locals, None), strict=True):
                if made is not None and (len(link.stores) != 1 or link.stores[0].buffer is not made):
                    yield f"a link of a chain makes more than {made.name}"
                yield from _node(link, ())
        case Reduce():
            for reduction in node.reductions:
                yield from _expression(reduction.value, scope | set(node.rdims), set())
            yield from _stores(node.stores, scope, {f.acc for f in node.reductions})
        case Attention() | AttentionGradient():
            if node.score is not None:
                yield from _expression(node.score, scope | {node.key}, {Acc("score", "f32")})
            if node.dropout is not None:
                yield from _expression(node.dropout, scope | {node.key}, set())
        case Scan():
            accs = {c.acc for c in node.carries}
            for carry in node.carries:
                yield from _expression(carry.start, scope, set())
                yield from _expression(carry.next, scope | {node.step}, accs)
                if {carry.start.dtype, carry.next.dtype} != {carry.acc.dtype}:
                    yield (
                        f"{carry.acc.name} is {carry.acc.dtype}, starts as {carry.start.dtype}, "
                        f"goes on as {carry.next.dtype}"
                    )
            yield from _stores(node.stores, scope | {node.step}, accs)
        case Scatter():
            if node.stores:
                yield from _stores(node.stores, scope, set())
            yield from _stores(node.updates, set(node.udims), set())
            yield from _own_elements(node)
        case Routine():
            own = (
                b.buffer.kind in ("temp", "output") or (isinstance(node, Custom) and b.buffer.of) for b in node.outputs
            )
            if not node.outputs or not all(own):
                yield "a routine needs outputs of its own"
        case Assert():
            if node.condition.dtype != "bool":
                yield f"{node.condition.name}, which has to hold, is {node.condition.dtype}, not bool"
        case Nest():
            for stage in node.stages:
                if stage.dims[: len(node.dims)] != node.dims:
                    yield "a stage of a nest does not start with its rows"
                yield from _node(stage, node.dims)
            if node.pipeline_stages and (
                len(node.pipeline_stages) != len(node.stages)
                or list(node.pipeline_stages) != sorted(node.pipeline_stages)
            ):
                yield "the pipeline stages of a nest are not one for each stage, in order"
            if node.walk is not None and not _walks(node):
                yield "a nest walks along a loop that its first and last stage do not begin with"


def _quantised(node: Gemm) -> Iterator[str]:
    """Integer weights are panels of one product, whose sum is an int32 where nothing scales it."""
    how = node.quantised
    if how is None:
        return
    if len(node.dims) != 2 or node.packed != (not node.b.strides) or (node.also and (node.packed or how.group)):
        yield "a product of integer weights is of one matrix"
    if how.run and (how.bits != 4 or node.packed):
        yield "planes are of weights of 4 bits, for GPUs"
    if (how.group == 0) != (how.scales is None):
        yield "groups and scales come together"
    whole = node.a_dtype == "i8" and not how.group
    if node.acc.dtype != ("i32" if whole else "f32"):
        yield f"the sum {node.acc.name} of a product of {node.a_dtype} and integers is {node.acc.dtype}"


def _walks(node: Nest) -> bool:
    """Whether the nest has two pipeline stages that both go along its walk."""
    ends = (node.stages[0], node.stages[-1])
    return node.pipeline_stages[-1:] == (1,) and all(
        s.dims[: len(node.dims) + 1] == (*node.dims, node.walk) for s in ends
    )


def _own_elements(node: Scatter) -> Iterator[str]:
    """An update reads of what the node fills only the element that it writes."""
    filled = {s.buffer for s in node.stores}
    for update in node.updates:
        if update.buffer not in filled and update.buffer.of is None:
            yield f"{update.buffer.name} is updated and was not filled"
        for load in update.value.loads:
            if load.buffer in (*filled, update.buffer) and (load.buffer, load.index) != (update.buffer, update.index):
                yield f"an update of {update.buffer.name}[{update.index}] reads {load}"


def _stores(stores: tuple[Store, ...], scope: set[Var], accs: set[Acc]) -> Iterator[str]:
    if not stores:
        yield "a node stores nothing"
    for store in stores:
        if store.value.dtype != store.buffer.dtype:
            yield f"a {store.value.dtype} value is stored in {store.buffer.name}, which is {store.buffer.dtype}"
        yield from _index(store.index, scope)
        if not _inside(store.index, store.buffer) and not _never_runs(scope):
            yield f"the store to {store.buffer.name}[{store.index}] may lie outside its {store.buffer.size} elements"
        yield from _expression(store.value, scope, accs)


def _never_runs(scope: set[Var]) -> bool:
    """A loop without steps: its indices are of no matter."""
    return any(v.extent == ZERO for v in scope)


def _expression(root: Expr, scope: set[Var], accs: set[Acc]) -> Iterator[str]:
    for e in root.walk():
        match e:
            case Load():
                yield from _index(e.index, scope)
                if not _inside(e.index, e.buffer) and not _never_runs(scope):
                    yield f"{e} may lie outside the buffer's {e.buffer.size} elements"
            case IndexValue():
                yield from _index(e.index, scope)
            case Acc():
                if e not in accs:
                    yield f"accumulator {e.name} does not belong to this node"
            case Call():
                yield from _call(e)
            case Const():
                if e.dtype not in DTYPES:
                    yield f"{e} has the unknown type {e.dtype}"


def _call(e: Call) -> Iterator[str]:
    if e.op == "cast":
        return
    row = OPS[e.op]
    if len(e.args) != row.arity:
        yield f"{e.op} takes {row.arity} operands: {e}"
    if any(a.dtype not in DTYPES for a in e.args):
        return  # told where the operand is looked at
    operands = e.args[1:] if e.op == "where" else e.args
    dtypes = {DTYPES[a.dtype].compute for a in operands}
    if len(dtypes) > 1:
        yield f"operands of different types {', '.join(sorted(dtypes))}: {e}"
    if any(DTYPES[a.dtype].kind not in row.accepts for a in operands):
        yield f"{e.op} does not take {', '.join(sorted(dtypes))}: {e}"
    if e.op == "where" and e.args[0].dtype != "bool":
        yield f"the condition of a where is {e.args[0].dtype}: {e}"


def _index(index: Index, scope: set[Var]) -> Iterator[str]:
    for atom in index.atoms():
        if isinstance(atom, Var) and atom not in scope:
            yield f"loop {atom.name} is used outside of it, in [{index}]"


def _inside(index: Index, buffer: Buffer) -> bool:
    """0 <= index < size is proved; indices with clamps and data are checked where they are made."""
    if any(isinstance(a, (Binary, Indirect)) for a in index.atoms()):
        return True
    if not nonnegative_by_cases(index):
        return False
    if any(s.found or s.hi is None for s in index.sizes() - buffer.size.sizes()):
        return True  # how these stand to other sizes is tested in the run: Program.checks, a loop's iterations
    return nonnegative_by_cases(buffer.size - index - 1)
