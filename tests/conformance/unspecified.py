"""Where eager itself specifies nothing, with the reason: the only places where results may differ from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from .catalog import Call, Entry


@dataclass(frozen=True)
class Free:
    """What of a result is free."""

    zeros: bool = False  # the sign of zeros
    overflow: bool = False  # elements that are not finite in eager
    values: bool = False  # all values
    errors: bool = False  # whether values that eager refuses are refused
    skipped: bool = False  # eager itself may end the process


@dataclass(frozen=True)
class Rule:
    """A row: entries by name, fills by name, what is free, and why."""

    entries: str
    free: Free
    reason: str
    fills: str = ""


def elementwise(entry: Entry) -> bool:
    """Whether each element of the results follows from one element of each input, so that no order of sums matters."""
    return isinstance(entry.op, (UnaryUfuncInfo, BinaryUfuncInfo)) or bool(re.fullmatch(_ELEMENTWISE, entry.name))


_ELEMENTWISE = "clamp|where|lerp|addcmul|addcdiv|nan_to_num|masked_fill|sign|sgn"

_INTEGERS = ".*integer|mixed|ties"

RULES: tuple[Rule, ...] = (
    Rule(
        "_segment_reduce.*|linalg.ldl_solve|(linalg.)?lu_solve|lu_unpack|_unsafe_masked_index.*|nn.functional.ctc_loss",
        Free(skipped=True),
        "eager takes lengths, pivots and indices without a check, and reads and writes outside of its tensors",
        _INTEGERS,
    ),
)


def free_of(entry: Entry, call: Call, fill: str = "", device: str = "cpu") -> Free:
    """What is free for a call of an entry."""
    found = [r.free for r in RULES if re.fullmatch(r.entries, entry.name) and re.match(r.fills, fill)]
    return Free(*(any(getattr(f, field) for f in found) for field in Free.__dataclass_fields__))
