"""Reductions in Triton: how a reduction steps, how it goes across a tile, what it starts from."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dtypes import DTYPES
from ...ir.expr import Const
from ...ir.nodes import Reduction
from ...ir.ops import Precedence
from .emit import literal
from .kernel import TL_DTYPE

POSITIONS = ("argmax", "argmin")


@dataclass(frozen=True)
class ReductionForm:
    """step: of {a} and {x}; across: of {a} along {axis} ({keep}: its dimension stays, as 1); start: as text; join: of
    the values of two parts, {a} and {x}; operand: how tightly {x} has to bind.

    whole: what follows `across` where no lane starts the reduction: a sum of -0 alone is 0, as torch's.
    position: what is wanted is where `across` is first reached; step is then a function of value and place, and the
    value and the place of what comes later.
    """

    step: str
    across: str
    start: str
    dtype: str  # of the tile, tl
    join: str
    operand: Precedence
    whole: str = ""
    position: bool = False


_FLOAT = {
    "sum": ("{a} + {x}", "tl.sum({a}, {axis}{keep})", 0.0),
    "prod": ("{a} * {x}", "tl.reduce({a}, {axis}, combine_prod{keep})", 1.0),
    "max": (
        "tl.maximum({a}, {x}, propagate_nan=tl.PropagateNan.ALL)", "tl.reduce({a}, {axis}, combine_max{keep})",
        float("-inf"),
    ),
    "min": (
        "tl.minimum({a}, {x}, propagate_nan=tl.PropagateNan.ALL)", "tl.reduce({a}, {axis}, combine_min{keep})",
        float("inf"),
    ),
}  # fmt: skip
_INTEGER = {
    "sum": ("{a} + {x}", "tl.sum({a}, {axis}{keep})"),
    "prod": ("{a} * {x}", "tl.reduce({a}, {axis}, combine_prod{keep})"),
    "max": ("tl.maximum({a}, {x})", "tl.reduce({a}, {axis}, combine_max_integer{keep})"),
    "min": ("tl.minimum({a}, {x})", "tl.reduce({a}, {axis}, combine_min_integer{keep})"),
}
_STARTS = {
    "sum": {"i32": 0, "i64": 0}, "prod": {"i32": 1, "i64": 1},
    "max": {"i32": -(2**31), "i64": -(2**63)}, "min": {"i32": 2**31 - 1, "i64": 2**63 - 1},
}  # fmt: skip
#: a difference may follow a sum as it is: it is summed from left to right
_OPERANDS = {"sum": Precedence.SUM, "prod": Precedence.UNARY}
#: truth values are reduced as 32-bit integers
_TRUTH = {
    "any": ("{a} | {x}", "tl.reduce({a}, {axis}, combine_any{keep})", "0"),
    "all": ("{a} & {x}", "tl.reduce({a}, {axis}, combine_all{keep})", "1"),
}


def reduction_form(reduction: Reduction) -> ReductionForm:
    """The form of a reduction; bool values are reduced as int32 (see `is_truth`)."""
    compute = DTYPES[reduction.value.dtype].compute
    op = {"argmax": "max", "argmin": "min", "top": "max"}.get(reduction.op, reduction.op)
    if is_truth(reduction):
        truth = {"max": "any", "min": "all"}.get(op, op)
        step, across, start = _TRUTH[truth]
        dtype = "tl.int32"
    elif DTYPES[compute].kind == "f":
        step, across, value = _FLOAT[op]
        start, dtype = literal(Const(value, compute)).text, TL_DTYPE[compute]
    else:
        step, across = _INTEGER[op]
        start, dtype = str(_STARTS[op][compute]), TL_DTYPE[compute]
    if reduction.op in POSITIONS:
        return ReductionForm(f"step_{reduction.op}", across, start, dtype, step, Precedence.ATOM, position=True)
    whole = " + 0.0" if op == "sum" and DTYPES[compute].kind == "f" else ""
    return ReductionForm(step, across, start, dtype, step, _OPERANDS.get(op, Precedence.LOWEST), whole)


def nothing(shape: str, dtype: str) -> str:
    """A tile to which values are added to spread them: of floats it is -0, as 0 + -0 is 0."""
    zeros = f"tl.zeros({shape}, {dtype})"
    return f"{zeros} * -1.0" if dtype.startswith(("tl.float", "tl.bfloat")) else zeros


def is_truth(reduction: Reduction) -> bool:
    return DTYPES[reduction.value.dtype].compute == "bool"
