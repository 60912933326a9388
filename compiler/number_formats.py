"""The formats of few bits that a model's weights can be quantised to, and how a user asks for them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from ..runtime.errors import CompileError

__all__ = ["FORMATS", "NumberFormat", "Quantization", "parse_quantization"]

#: what a layer multiplies its weights with: floats, or integers whose scales each row of activations finds for itself
#: (dynamic) or calibration has found (static)
Activations = Literal["float", "dynamic", "static"]


@dataclass(frozen=True)
class NumberFormat:
    """Integers of a few bits, or numbers of float8, that share scales.

    Attributes:
        name: the word that a user gives.
        bits: of a weight.
        group: weights of a row that share a scale; 0: the whole row.
        activations: see Activations.
        may_group: whether a user may choose the group.
        float8: the weights are float8_e4m3fn.
    """

    name: str
    bits: int
    group: int = 0
    activations: Activations = "float"
    may_group: bool = False
    float8: bool = False

    def __str__(self) -> str:
        return f"{self.name}:group={self.group}" if self.may_group else self.name + " static" * self.is_static

    @property
    def is_static(self) -> bool:
        """Whether the scales of activations are constants."""
        return self.activations == "static"


#: by name, with their defaults
FORMATS = {
    row.name: row
    for row in (
        NumberFormat("int8", 8),
        NumberFormat("int8-dynamic", 8, activations="dynamic"),
        NumberFormat("int4", 4, 32, may_group=True),
        NumberFormat("fp8", 8, float8=True),
    )
}
#: what other tools call formats that are not made here, and what to take instead
_ELSEWHERE = {
    "float8": "fp8", "fp4": "int4", "nf4": "int4", "mxfp4": "int4", "nvfp4": "int4", "mxfp8": "fp8", "e4m3": "fp8",
    "int2": "int4", "int3": "int4", "8da4w": "int4", "w4a16": "int4", "w8a16": "int8", "w8a8": "int8-dynamic",
    "q8_0": "int8", "q4_0": "int4",
}  # fmt: skip


@dataclass(frozen=True)
class Quantization:
    """What a user wants quantised.

    Attributes:
        format: of the weights.
        skip: patterns of layers' names ("lm_head", "layers.0.*") that stay as they are.
        calibrate: inputs that stand for those to come: a file, module:function, or a list of tuples; None: no.
        max_error: the largest error that the model may have by it, relative to its results; None: any.
    """

    format: NumberFormat
    skip: tuple[str, ...] = ()
    calibrate: Any = field(default=None, compare=False)
    max_error: float | None = None

    def skips(self, *names: str) -> bool:
        """Whether a layer of these names stays as it is."""
        return any(fnmatchcase(name, pattern) for pattern in self.skip for name in names)


def parse_quantization(
    text: object, skip: str | Sequence[str] = (), calibrate: Any = None, max_error: float | None = None
) -> Quantization | None:
    """A user's wish: "int8", "int8-dynamic", "int4", "int4:group=64", "fp8"; None: none. Raises CompileError."""
    patterns = tuple(p.strip() for word in ([skip] if isinstance(skip, str) else skip) for p in word.split(","))
    if text is None:
        for name, given in (("quantize-skip", patterns), ("calibrate", calibrate), ("max-error", max_error)):
            if given is not None and given != ():
                raise CompileError(f"--{name} says how to quantise, and nothing is to be quantised", hint=_hint())
        return None
    if max_error is not None and not 0 < max_error < math.inf:
        raise CompileError(f"the largest error has to be a number above 0, not {max_error}")
    chosen = _format(str(text))
    if calibrate is not None:
        if chosen.name != "int8":
            raise CompileError(f"'{chosen.name}' takes no calibration", hint="Static quantisation is --quantize int8.")
        chosen = replace(chosen, activations="static")
    return Quantization(chosen, tuple(filter(None, patterns)), calibrate, max_error)


def _format(text: str) -> NumberFormat:
    match = re.fullmatch(r"([\w-]+)(?::group=(\d+))?", text.strip())
    name = match[1].lower() if match else text
    if match is None or name not in FORMATS:
        near = _ELSEWHERE.get(name)
        instead = f"Use {near} instead: {', '.join(FORMATS)} are made." if near else _hint()
        raise CompileError(f"cannot quantise to '{text}'", hint=instead)
    row = FORMATS[name]
    if match[2] is None:
        return row
    if not row.may_group:
        raise CompileError(f"'{name}' has a scale for each row, and no groups", hint="Groups are for int4:group=64.")
    group = int(match[2])
    if group < 16 or group % 16:
        raise CompileError(f"a group of {group} weights is none", hint="A group is a multiple of 16: 32, 64, 128.")
    return replace(row, group=group)


def _hint() -> str:
    return f"Formats: {', '.join(FORMATS)}; int4:group=64 has a scale for each 64 weights."
