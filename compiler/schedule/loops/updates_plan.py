"""The decisions of an UpdatesPlan, a function each: planning.py has them as rows."""

from __future__ import annotations

from ...ir.index import ONE, Var
from ...ir.lanes import direct
from ...ir.nodes import Scatter
from ...ir.plans.kernel import Kernel
from ...ir.plans.loop import Prefetch, UpdatesPlan
from .collapse import filling
from .prefetch import stream_prefetches
from .vector_axis import vector_loop


def fill_lanes(kernel: Kernel) -> Var | None:
    """The loop along the lanes of the fill."""
    node, _ = _parts(kernel)
    return vector_loop(filling(node))


def update_columns(kernel: Kernel) -> Var | None:
    """The last of the loops that lead to places of their own, where its neighbours lie side by side in memory."""
    node, _ = _parts(kernel)
    own = node.udims[: node.parallel]
    columns = bool(own) and all(direct(u.index).coefficient(own[-1]) == ONE for u in node.updates)
    return own[-1] if columns else None


def update_lanes(kernel: Kernel) -> bool:
    """Whether neighbours are a vector: the place itself moves along them, not an index that is read."""
    node, plan = _parts(kernel)
    columns = plan.columns
    return columns is not None and all(u.index.coefficient(columns) == ONE for u in node.updates)


def update_prefetch(kernel: Kernel) -> tuple[Prefetch, ...]:
    """What vectors of updates fetch of the rows that lie behind theirs."""
    node, plan = _parts(kernel)
    rest = node.udims[node.parallel :]
    if plan.columns is None or not plan.lanes or not rest:
        return ()
    return stream_prefetches(plan.columns, [u.value for u in node.updates], rest[-1], rest)


def _parts(kernel: Kernel) -> tuple[Scatter, UpdatesPlan]:
    assert isinstance(kernel.node, Scatter)
    assert isinstance(kernel.plan, UpdatesPlan)
    return kernel.node, kernel.plan
