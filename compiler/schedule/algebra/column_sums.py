"""Column sums: on a GPU reductions of the same long columns become one, and a variance reads its elements once.

b[j] = sum over i of g[i, j]                        b[j], w[j] = sums over i of g[i, j], g[i, j] x[i, j]
w[j] = sum over i of g[i, j] x[i, j]        ->

m[j] = sum over i of x[i, j] / I                    for parts c of i:  S[j, c], A[j, c], B[j, c] =
s[j] = sum over i of (x[i, j] - m[j])^2     ->          sums over i of x, x - f, (x - f)^2, with f = x[first of c, j]
                                                        Q[j, c] = B - A^2 / n
                                                    m[j] = sum over c of S[j, c] / I
                                                    s[j] = sum over c of Q[j, c], and n times the squares of S[j, c] / n

The law is Chan's (ir/laws.py). Shifted by an element of its own, a part of n elements cancels at most a factor of n,
whatever their mean: n (f - mean)^2 is no more than n times the squares, of which (f - mean)^2 is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Acc, Call, Const, Expr, Load, rewrite, substitute
from ...ir.index import ONE, ZERO, Atom, Index, Var, as_index, of, product, row_major
from ...ir.nodes import Map, Reduce, Reduction, Store
from ...ir.rewrite.loops import digits
from ...machine.gpu_programs import SplitFacts
from ..fusion.dead_results import remove_dead
from ..fusion.horizontal import in_loops_of, joined
from ..fusion.invert import invert
from ..graph import NodeGraph
from .mean_variance import Pair, pair_of
from .rfactor_gpu import lies_across, parts_of_columns

#: maps that are looked through for what a reduction reads
DEPTH = 6


def join_column_sums(graph: NodeGraph, facts: SplitFacts) -> None:
    """Makes variances of long columns in one reading, and joins sums of the same columns."""
    for node in list(graph.nodes):
        if isinstance(node, Reduce) and _is_long(node, facts):
            pair = pair_of(graph, node)
            if pair is not None and node.reductions[0].acc.dtype == "f32":
                _read_once(graph, pair, facts)
    while (pair_ := _beside(graph, facts)) is not None:
        first, second, renamed = pair_
        graph.remove(first)
        graph.replace(second, joined((first, renamed)))
    remove_dead(graph)


def _is_long(node: Reduce, facts: SplitFacts) -> bool:
    """Whether it sums long columns, too few for a program each."""
    rows, length = (product(v.extent for v in loops).constant for loops in (node.dims, node.rdims))
    sums = all(f.op == "sum" for f in node.reductions)
    if not sums or rows is None or length is None or not lies_across(node):
        return False
    return 0 < rows < facts.columns and length >= facts.column


# variances -----------------------------------------------------------------------------------------------------------
def _read_once(graph: NodeGraph, pair: Pair, facts: SplitFacts) -> None:
    """Puts the sums of parts in the place of the mean, and what they make in those of the mean and of the squares."""
    mean, squares = pair.mean, pair.squares
    rows, length = (product(v.extent for v in loops).constant for loops in (mean.dims, mean.rdims))
    assert rows is not None
    assert length is not None
    parts = max(c for c in range(1, parts_of_columns(rows, facts) + 1) if length % c == 0)
    if parts < facts.least_parts:
        return
    count = length // parts
    part, within = Var("c" + mean.rdims[0].name, as_index(parts)), Var("l" + mean.rdims[0].name, as_index(count))
    place = row_major(mean.dims) * parts + of(part)
    name = squares.stores[0].buffer.name
    sums, deviations = (Buffer(f"{name}_{what}", "f32", as_index(rows * parts), "temp") for what in ("sums", "parts"))
    value = substitute(pair.value, digits(mean.rdims, of(part) * count + of(within)))
    shifted = _call("sub", value, substitute(value, {within: ZERO}))
    all_, moved, squared = (Acc(f"{name}{i}", "f32") for i in "sab")
    first = Reduce(
        (part, *mean.dims),
        (Store(sums, place, all_), Store(deviations, place, _squares(squared, moved, count))),
        mean.origin + squares.origin,
        (within,),
        (
            Reduction(all_, "sum", value),
            Reduction(moved, "sum", shifted),
            Reduction(squared, "sum", _call("mul", shifted, shifted)),
        ),
    )
    total, (inside, apart, between) = mean.reductions[0].acc, (Acc(f"{name}{i}", "f32") for i in "ijk")
    own = _call("div", Load(sums, place), Const(float(count), "f32"))
    other = _call("sub", own, substitute(own, {part: ZERO}))
    found = _call("add", inside, _call("mul", _squares(between, apart, parts), Const(float(count), "f32")))
    at: dict[Atom, Index] = {v: of(u) for v, u in zip(squares.dims, mean.dims, strict=True)}

    def squares_of(e: Expr) -> Expr | None:
        return found if e == squares.reductions[0].acc else None

    ends = [Store(s.buffer, s.index.substitute(at), rewrite(s.value, squares_of, at)) for s in squares.stores]
    second = replace(
        mean, stores=(*mean.stores, *ends), rdims=(part,), origin=mean.origin + squares.origin,
        reductions=(
            Reduction(total, "sum", Load(sums, place)),
            Reduction(inside, "sum", Load(deviations, place)),
            Reduction(apart, "sum", other),
            Reduction(between, "sum", _call("mul", other, other)),
        ),
    )  # fmt: skip
    graph.remove(squares)
    graph.replace_by(mean, (first, second))


def _squares(squared: Expr, moved: Expr, count: int) -> Expr:
    """The squares about the mean of values whose squares and sum are those of their distances from another number."""
    least = _call("sub", squared, _call("div", _call("mul", moved, moved), Const(float(count), "f32")))
    return _call("maximum", least, Const(0.0, "f32"))


def _call(op: str, *args: Expr) -> Call:
    return Call(op, args, "f32")


# sums of the same columns --------------------------------------------------------------------------------------------
def _beside(graph: NodeGraph, facts: SplitFacts) -> tuple[Reduce, Reduce, Reduce] | None:
    """Two reductions that read the same and may both run in the place of the second, and that one in the loops of the
    first."""
    seen: list[tuple[Reduce, set[Load]]] = []
    for node in graph.nodes:
        if not isinstance(node, Reduce) or not _is_long(node, facts):
            continue
        for first, read in reversed(seen):
            renamed = in_loops_of(first, node)
            if renamed is not None and read & _sources(graph, renamed) and _runs_later(graph, first, node):
                return first, node, renamed
        seen.append((node, _sources(graph, node)))
    return None


def _runs_later(graph: NodeGraph, first: Reduce, node: Reduce) -> bool:
    """Whether a reduction may run where a later one does: nobody reads its result before, and what it reads stays."""
    made = {s.buffer.root for s in first.stores}
    low, high = graph.position(first), graph.position(node)
    between = [n for n in graph.nodes if low < graph.position(n) <= high]
    kept = all(s.buffer.of is None for s in first.stores)
    asked = any(b.root in made for n in between for b in (*n.reads(), *n.writes()))
    return kept and not asked and not graph.crosses(first.reads(), first, node)


def _sources(graph: NodeGraph, node: Reduce) -> set[Load]:
    """What a reduction reads of every element, behind the maps that make it."""
    found: set[Load] = set()
    waiting = [(load, 0) for f in node.reductions for load in f.value.loads]
    while waiting:
        load, depth = waiting.pop()
        behind = list(_behind(graph, load)) if depth < DEPTH else []
        waiting += [(own, depth + 1) for own in behind]
        if not behind:
            found.add(load)
    loops = {v for v in (*node.dims, *node.rdims) if v.extent != ONE}
    return {load for load in found if loops <= load.vars()}


def _behind(graph: NodeGraph, load: Load) -> Iterator[Load]:
    """What the map reads that makes an element; nothing where no map does."""
    maker = graph.producer(load.buffer) if load.buffer.kind == "temp" else None
    if isinstance(maker, Map) and len(maker.stores) == 1:
        values = invert(maker.stores[0], maker.dims, load.index)
        if values is not None:
            yield from substitute(maker.stores[0].value, values).loads
