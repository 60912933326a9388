"""Loops over elements: Map, Reduce, Nest, Scan, Scatter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product as places_of
from math import prod

import numpy as np

from ..buffers import Buffer
from ..expr import Acc
from ..index import Var, row_major
from ..nodes import Map, Nest, Reduce, Reduction, Scan, Scatter
from .iterations import Iterations
from .memory import Cells, Memory, Rows
from .numbers import Array, Fault, Undefined, Value


def run_map(node: Map, memory: Memory, rows: Rows | None = None) -> None:
    iterations = Iterations.over(memory, node.dims, rows=rows)
    for store in node.stores:
        iterations.store(store)


def run_reduce(node: Reduce, memory: Memory, rows: Rows | None = None) -> None:
    inner = Iterations.over(memory, (*node.dims, *node.rdims), rows=rows)
    accs = {reduction.acc: _reduced(reduction, inner, len(node.dims)) for reduction in node.reductions}
    iterations = Iterations.over(memory, node.dims, accs, rows)
    for store in node.stores:
        iterations.store(store)


def run_nest(node: Nest, memory: Memory) -> None:
    """Stage after stage over all rows: `pipeline_stages` and `walk` say in which order kernels do it, and change no
    value."""
    _check_stages(node)
    count = prod(max(v.extent.evaluate(memory.sizes), 0) for v in node.dims)
    locals_ = {b: Cells.unknown(b.dtype, count * memory.size(b)) for b in node.locals}
    rows = Rows(node.dims, count, locals_)
    for stage in node.stages:
        if isinstance(stage, Reduce):
            run_reduce(stage, memory, rows)
        else:
            run_map(stage, memory, rows)


def _check_stages(node: Nest) -> None:
    """A local buffer holds one row: a pipeline stage reads what its own or the one before it made, for the next row is
    behind it then."""
    pairs = list(zip(node.pipeline_stages, node.stages, strict=True)) if node.pipeline_stages else []
    made = {b: pipeline_stage for pipeline_stage, stage in pairs for b in stage.writes() if b in node.locals}
    for pipeline_stage, stage in pairs:
        for buffer in stage.reads():
            if not 0 <= pipeline_stage - made.get(buffer, pipeline_stage) <= 1:
                raise Undefined(
                    f"{buffer.name} of pipeline stage {made[buffer]} is read in pipeline stage {pipeline_stage}"
                )


# reductions ----------------------------------------------------------------------------------------------------------
def _sum(x: Array) -> Array:
    return np.asarray(x.sum(-1, dtype=x.dtype))


def _squared_deviations(x: Array) -> Array:
    """The sum of squared deviations from the mean."""
    if not x.shape[-1]:
        return _sum(x)
    return _sum((x - x.mean(-1, keepdims=True)) ** 2)


def _largest(x: Array) -> Array:
    return np.asarray(x.max(-1, initial=_worst(x.dtype, -1)))


def _smallest(x: Array) -> Array:
    return np.asarray(x.min(-1, initial=_worst(x.dtype, 1)))


def _worst(dtype: np.dtype, sign: int) -> float | int | bool:
    """The largest value of a type, or the smallest for sign -1."""
    if dtype.kind == "b":
        return sign > 0
    if dtype.kind == "f":
        return sign * float("inf")
    info = np.iinfo(dtype)
    return int(info.max if sign > 0 else info.min)


#: over the last axis; NaN wins of the largest, the smallest and their places, and the first of equal ones
REDUCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "sum": _sum,
    "prod": lambda x: np.asarray(x.prod(-1, dtype=x.dtype)),
    "max": _largest,
    "min": _smallest,
    "top": _largest,
    "any": lambda x: np.asarray(x.any(-1)),
    "all": lambda x: np.asarray(x.all(-1)),
    "argmax": lambda x: np.asarray(x.argmax(-1)),
    "argmin": lambda x: np.asarray(x.argmin(-1)),
    "welford": _squared_deviations,
}


def _reduced(reduction: Reduction, iterations: Iterations, kept: int) -> Value:
    """A reduction over the loops behind the first `kept` ones."""
    value, shape = iterations.value(reduction.value), iterations.shape
    outer = shape[:kept]
    flat = np.broadcast_to(value.array, shape).reshape(*outer, prod(shape[kept:]))
    fault = None
    if value.fault is not None:
        where = np.asarray(np.broadcast_to(value.fault.where, shape).reshape(flat.shape).any(-1))
        fault = Fault(where, value.fault.error) if where.any() else None
    if not flat.shape[-1] and reduction.op in ("argmax", "argmin"):
        return Value(np.zeros(outer, np.int64), Fault(np.ones(outer, bool), Undefined(f"{reduction.op} of nothing")))
    with np.errstate(all="ignore"):
        result = REDUCTIONS[reduction.op](flat)
    return Value(iterations.memory.numbers.computed(result, reduction.acc.dtype), fault)


# steps in order ------------------------------------------------------------------------------------------------------
def run_scan(node: Scan, memory: Memory) -> None:
    accs = dict[Acc, Value]()
    first = Iterations.over(memory, node.dims)
    for carry in node.carries:
        accs[carry.acc] = first.value(carry.start)
    for step in range(node.step.extent.evaluate(memory.sizes)):
        fixed = {node.step: step}
        before = Iterations.over(memory, node.dims, accs, fixed=fixed)
        accs = {carry.acc: before.value(carry.next) for carry in node.carries}
        iterations = Iterations.over(memory, node.dims, accs, fixed=fixed)
        for store in node.stores:
            iterations.store(store)


def run_scatter(node: Scatter, memory: Memory) -> None:
    """An update only reads and writes its own element, so elements do not wait for one another: first all updates that
    are the first of their element, then all that are the second, and so on."""
    if node.stores:
        iterations = Iterations.over(memory, node.dims)
        for store in node.stores:
            iterations.store(store)
    iterations = Iterations.over(memory, node.udims)
    for buffer in dict.fromkeys(u.buffer.root for u in node.updates):
        _update(node, iterations, buffer)


def _update(node: Scatter, iterations: Iterations, root: Buffer) -> None:
    updates = [u for u in node.updates if u.buffer.root is root]
    columns = [iterations.index(u.index).over(iterations.shape).reshape(-1) for u in updates]
    places = np.stack(columns, 1).reshape(-1)  # turn by turn, and in a turn one update after the other
    order, ranks = _ranks(places)
    _check_parallel(node, iterations, places[order], order // len(updates))
    ranks = ranks.reshape(-1, len(updates))
    for rank, number in places_of(range(int(ranks.max(initial=-1)) + 1), range(len(updates))):
        lanes = np.flatnonzero(ranks[:, number] == rank)
        if len(lanes):
            iterations.some(lanes).store(updates[number], again=True)


def _ranks(places: Array) -> tuple[Array, Array]:
    """The places in a stable order, and how many equal ones come before each."""
    order = np.argsort(places, kind="stable")
    count = np.arange(len(places))
    begins = np.concatenate(([True], places[order][1:] != places[order][:-1]))[: len(places)]
    ranks = np.empty(len(places), np.int64)
    ranks[order] = count - np.maximum.accumulate(np.where(begins, count, 0)) if len(places) else count
    return order, ranks


def _check_parallel(node: Scatter, iterations: Iterations, places: Array, lanes: Array) -> None:
    """The first loops of the updates, which run in parallel, lead to places of their own."""
    parallel: tuple[Var, ...] = node.udims[: node.parallel]
    if not parallel or not len(places):
        return
    task = np.broadcast_to(iterations.index(row_major(parallel)).array, iterations.shape).reshape(-1)[lanes]
    if ((places[1:] == places[:-1]) & (task[1:] != task[:-1])).any():
        raise Undefined("updates that run in parallel meet at an element")
