"""The vector loop of a scan: independent columns, the steps of a running sum, or none.

    for s:  acc = acc + x[s], y[s] = acc      ->      for s by W:  y[s..] = acc + running sums of x[s..], acc = the last

The steps are reassociated only for integers, which wrap in any order, and for sums in a wider type than the elements',
which are exact or nearly so in any order and overflow where single steps do. Products are reassociated only of float32
in float64, whose exponents suffice for those of a vector. A product that leaves the range of float64 and comes back may
be right where single steps would stay at 0 or infinity.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Call, Expr
from ...ir.index import ONE, Index
from ...ir.nodes import Scan
from ...ir.plans.loop import Form
from ...machine.cpu_loops import LANE_LOOPS


def scan_form(node: Scan) -> Form:
    """The form of a scan whose loops are collapsed."""
    if lies_in_columns(node):
        return Form.SCAN_COLUMNS
    value = running_value(node)
    if value is None or not _along(node, value) or (node.step.extent.constant or LANE_LOOPS.least) < LANE_LOOPS.least:
        return Form.SCAN
    return Form.SCAN_LANES


def lies_in_columns(node: Scan) -> bool:
    """Whether all accesses go along the last kept loop side by side."""
    if not node.dims or (node.dims[-1].extent.constant or LANE_LOOPS.least) < LANE_LOOPS.least:
        return False
    vector = node.dims[-1]
    steps = [ld.index.coefficient(vector) for e in node.expressions() for ld in e.loads]
    dense = all(step is not None and (not step.terms or step == ONE) for step in steps)
    stored = all(s.index.coefficient(vector) == ONE for s in node.stores)
    return dense and stored and not any(vector in c.start.vars() for c in node.carries)


def running_value(node: Scan) -> Expr | None:
    """What is added or multiplied in each step: one narrower number, or an integer."""
    if len(node.carries) != 1:
        return None
    (carry,) = node.carries
    match carry.next:
        case Call("add", (Acc() as acc, value)) if acc == carry.acc and value.dtype == "i64":
            return value
        case Call(("add" | "mul") as op, (Acc() as acc, Call("cast", (narrow,)) as value)) if acc == carry.acc:
            if op == "mul" and (value.dtype, narrow.dtype) != ("f64", "f32"):
                return None
            wider = DTYPES[narrow.dtype].size < DTYPES[value.dtype].size
            floats = DTYPES[narrow.dtype].kind == DTYPES[value.dtype].kind == "f"
            return value if wider and floats else None
    return None


def _along(node: Scan, value: Expr) -> bool:
    """Whether neighbours in memory are steps, of all that is read and written."""
    read: Iterable[Index] = [ld.index for e in (value, *(s.value for s in node.stores)) for ld in e.loads]
    steps = [index.coefficient(node.step) for index in read]
    dense = all(step is not None and (not step.terms or step == ONE) for step in steps)
    return dense and all(s.index.coefficient(node.step) == ONE for s in node.stores)
