"""Scans whose steps combine, so that stretches of a row can be scanned side by side: which function combines two."""

from __future__ import annotations

from ...ir.dtypes import DTYPES
from ...ir.expr import Acc, Call, Expr
from ...ir.nodes import Carry
from ...ir.plans.gpu import Combination

_SUMS = {"add": ("combine_add", "tl.cumsum"), "mul": ("combine_prod", "tl.cumprod")}
_EXTREMA = {"maximum": "combine_max", "minimum": "combine_min"}
_LAST = {"ge": "combine_last_max", "le": "combine_last_min"}


def combination(carries: tuple[Carry, ...]) -> Combination | None:
    """The combination of a scan's steps, None where they have to be taken in order."""
    first = carries[0].next
    if not isinstance(first, Call):
        return None
    accs = {c.acc for c in carries}
    if any(DTYPES[acc.dtype].compute == "bool" for acc in accs):
        return None
    if len(carries) == 1:
        return _of_one(carries[0].acc, first)
    second = carries[-1].next
    if len(carries) == 2 and first.op == "where" and isinstance(second, Call) and second.op == "where":
        chosen, value, kept = first.args
        agree = second.args[0] == chosen and (kept, second.args[2]) == (carries[0].acc, carries[1].acc)
        values = (value, second.args[1])
        if agree and (function := _last(chosen, value, carries[0].acc)) and not any(_reads(v, accs) for v in values):
            return Combination(values, function)
    return None


def _of_one(acc: Acc, following: Call) -> Combination | None:
    if following.op in _SUMS | _EXTREMA:
        left, right = following.args
        value = right if left == acc else left if right == acc else None
        if value is None or _reads(value, {acc}):
            return None
        if following.op in _SUMS:
            return Combination((value,), *_SUMS[following.op])
        integer = "_integer" if DTYPES[value.dtype].kind != "f" else ""
        return Combination((value,), _EXTREMA[following.op] + integer)
    value = _added_in_logs(acc, following)
    return Combination((value,), "combine_log_add") if value is not None and not _reads(value, {acc}) else None


def _last(chosen: Expr, value: Expr, acc: Acc) -> str | None:
    """The function for `value >= acc` or `value <= acc`, also where the value is no number."""
    if not isinstance(chosen, Call):
        return None
    if chosen.op == "logical_or":
        chosen, other = chosen.args
        if other != Call("isnan", (value,), "bool") or not isinstance(chosen, Call):
            return None
    return _LAST.get(chosen.op) if chosen.args == (value, acc) else None


def _added_in_logs(acc: Acc, following: Call) -> Expr | None:
    """b of log(exp acc + exp b), written as where(.., max + log1p(exp(min - max)), acc)."""
    if following.op != "where" or following.args[2] != acc:
        return None
    total = following.args[1]
    if not (isinstance(total, Call) and total.op == "add" and isinstance(total.args[0], Call)):
        return None
    high = total.args[0]
    if high.op != "maximum" or high.args[0] != acc:
        return None
    low = Call("minimum", high.args, acc.dtype)
    inner: Expr = Call("sub", (low, high), acc.dtype)
    for op in ("exp", "log1p"):
        inner = Call(op, (inner,), acc.dtype)
    return high.args[1] if total.args[1] == inner else None


def _reads(e: Expr, accs: set[Acc]) -> bool:
    return e in accs or any(_reads(child, accs) for child in e.children)
