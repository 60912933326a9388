"""The row form of GPU kernels: a program has some rows, and the other loops of a stage are one column index.

nest[b:s0, m:128]                                        row = b*128 + m
  reduce[...; h:12, d:64] acc = sum x[...]          ->     reduce over j:768   acc = sum x[row*768 + j]
  map[..., n:768] y[...] = x[...] - acc                    map   over j:768   y[row*768 + j] = x[row*768 + j] - acc

Registers hold what a stage stores for later stages that read the same element. A nest that reads other elements of its
results has no such form; `separate_rows` makes kernels of its stages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...ir.buffers import Buffer
from ...ir.expr import Expr, Load, rewrite
from ...ir.index import (
    Atom,
    Index,
    Var,
    product,
    row_major,
)
from ...ir.nodes import Map, Nest, Reduce, Store
from ...ir.plans.gpu import RowForm, RowStage
from ...ir.rewrite import flattened, map_expressions, substituted
from ...machine.gpu_programs import RowFacts
from ..graph import NodeGraph, label
from ..remarks import Remarks

COLUMNS = ("j", "k", "l", "o", "p", "q", "r", "s")


def row_form(node: Map | Reduce | Nest, facts: RowFacts) -> RowForm | None:
    """The form of a node, or None when it has none. facts: how long rows are that a program of the GPU holds."""
    rows, stages, locals_ = _parts(node)
    row = Var("row", product(v.extent for v in rows)) if rows else None
    values = flattened(rows, row)
    columns: dict[Index, Var] = {}
    found = []
    for stage in stages:
        inner = stage.dims[len(rows) :]
        loops = inner
        if isinstance(stage, Reduce):
            if inner:
                return None
            loops = stage.rdims
        extent = product(v.extent for v in loops)
        column = None
        if loops or isinstance(stage, Reduce):  # one over nothing reduces one element
            if extent not in columns and len(columns) == len(COLUMNS):
                return None
            column = columns.setdefault(extent, Var(COLUMNS[len(columns)], extent))
        found.append(RowStage(_moved(stage, {**values, **flattened(loops, column)}, row, column), column))
    whole = all(_held(v.extent, facts) for v in columns.values())
    if not _at_hand(found, whole):
        return None
    return RowForm(row, tuple(found), locals_, whole)


def _parts(node: Map | Reduce | Nest) -> tuple[tuple[Var, ...], tuple[Map | Reduce, ...], tuple[Buffer, ...]]:
    if isinstance(node, Nest):
        return node.dims, node.stages, node.locals
    return (node.dims if isinstance(node, Reduce) else node.dims[:-1]), (node,), ()


def _held(extent: Index, facts: RowFacts) -> bool:
    from ...ir.index import Size

    if extent.constant is not None:
        return extent.constant <= facts.held
    sizes = {s.name: s.hi for s in extent.atoms() if isinstance(s, Size)}
    if any(hi is None for hi in sizes.values()):
        return False
    return extent.evaluate({name: hi for name, hi in sizes.items() if hi is not None}) <= facts.held_dynamic


def _moved(stage: Map | Reduce, values: dict[Atom, Index], row: Var | None, column: Var | None) -> Map | Reduce:
    changed = substituted(stage, values)
    rows = () if row is None else (row,)
    columns = () if column is None else (column,)
    if isinstance(changed, Reduce):
        return replace(changed, dims=rows, rdims=columns)
    return replace(changed, dims=(*rows, *columns))


def _at_hand(stages: Iterable[RowStage], whole: bool) -> bool:
    """Whether everything that a stage reads of earlier stages' results is at the place where they wrote it."""
    written: dict[Buffer, set[Index]] = {}
    for stage in stages:
        for e in stage.node.expressions():
            for load in e.loads:
                if load.buffer in written and load.index not in written[load.buffer]:
                    return False
                if load.buffer in written and not whole and stage.column in load.index.vars():
                    return False
        for store in stage.node.stores:
            if any(load.buffer in written for e in Load(store.buffer, store.index).children for load in e.loads):
                return False
            written.setdefault(store.buffer, set()).add(store.index)
    return True


def separate_rows(graph: NodeGraph, remarks: Remarks, facts: RowFacts) -> None:
    """Makes kernels of the stages of every nest that has no row form; its locals become buffers of the arena."""
    for node in list(graph.nodes):
        if isinstance(node, Nest) and row_form(node, facts) is None:
            stages = _with_buffers(node)
            remarks.refused(label(node), label(stages[-1]), "its rows do not fit one program")
            graph.replace_by(node, stages)


def _with_buffers(nest: Nest) -> tuple[Map | Reduce, ...]:
    rows = product(v.extent for v in nest.dims)
    flat = row_major(nest.dims)
    temps = {b: Buffer(b.name, b.dtype, rows * b.size, "temp") for b in nest.locals}

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in temps:
            return Load(temps[e.buffer], flat * e.buffer.size + e.index)
        return None

    stages = []
    for stage in nest.stages:
        changed = map_expressions(stage, lambda e: rewrite(e, leaf))
        stores = tuple(
            Store(temps[s.buffer], flat * s.buffer.size + s.index, s.value) if s.buffer in temps else s
            for s in changed.stores
        )
        stages.append(replace(changed, stores=stores))
    return tuple(stages)
