"""Samples of operators: a call written down as data, and the module, inputs and shapes made from it.

Sample("aten.add.Tensor", (T("B", 4), T(4)))        x[batch, 4] + y[4], compiled for every batch from 1 to 64
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

BATCH = "B"
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0)

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}


@dataclass(frozen=True)
class Operand:
    """A tensor operand.

    low, high: the range of its values. constant: a buffer of the module rather than an input. special: starts with NaN,
    infinities and zeros. view: what the module does with the input before the operator reads it.
    """

    shape: tuple[int | str, ...]
    dtype: str
    low: float
    high: float
    constant: bool = False
    special: bool = False
    view: Callable[[torch.Tensor], torch.Tensor] | None = None

    def at(self, batch: int) -> tuple[int, ...]:
        return tuple(batch if n == BATCH else int(n) for n in self.shape)

    def make(self, batch: int, generator: torch.Generator) -> torch.Tensor:
        shape, dtype = self.at(batch), DTYPES[self.dtype]
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) < 0.5
        if not dtype.is_floating_point:
            return torch.randint(int(self.low), int(self.high) + 1, shape, generator=generator).to(dtype)
        values = torch.rand(shape, generator=generator, dtype=torch.float64) * (self.high - self.low) + self.low
        if self.special:
            flat = values.reshape(-1)
            flat[: len(SPECIAL)] = torch.tensor(SPECIAL[: flat.numel()], dtype=torch.float64)
        return values.to(dtype)


def T(*shape: int | str, dtype: str = "f32", low: float = -2.0, high: float = 2.0, **rest: Any) -> Operand:
    """An operand; see Operand."""
    return Operand(shape, dtype, low, high, **rest)


def I(*shape: int | str, dtype: str = "i64", low: int = -9, high: int = 9, **rest: Any) -> Operand:  # noqa: E743
    """An operand of integers."""
    return Operand(shape, dtype, low, high, **rest)


def W(*shape: int, dtype: str = "f32", low: float = -1.0, high: float = 1.0) -> Operand:
    """A constant operand, such as a weight."""
    return Operand(shape, dtype, low, high, constant=True)


@dataclass(frozen=True)
class Sample:
    """One call of an operator.

    ulps: tolerance in units in the last place of the output's dtype, beside eager's own error twice. sums: the unit is
    taken of the output's largest value, as sums of terms of both signs have it. beside: units of 1 that are allowed on
    top, where a result may be small beside what it is made of. eager: the result depends on the dtype, compare with
    torch's own. least: the smallest batch. note: tells samples of one call apart.
    """

    operator: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    ulps: float = 4.0
    sums: bool = False
    beside: float = 0.0
    eager: bool = False
    least: int = 1
    note: str = ""

    @property
    def operands(self) -> list[Operand]:
        return [x for x in pytree.tree_leaves((self.args, dict(self.kwargs))) if isinstance(x, Operand)]

    @property
    def dynamic(self) -> bool:
        return any(BATCH in o.shape for o in self.operands)

    @property
    def batches(self) -> tuple[int, ...]:
        """Batches to run; the first one is exported."""
        return (self.least + 2, self.least, self.least + 6) if self.dynamic else (0,)

    @property
    def name(self) -> str:
        """Operator, operands and the rest of its arguments."""
        parts = []
        for x in pytree.tree_leaves((self.args, dict(self.kwargs))):
            text = f"{x.dtype}[{','.join(map(str, x.shape))}]" if isinstance(x, Operand) else str(x)
            if isinstance(x, Operand):
                text += "const" * x.constant + "special" * x.special + "view" * (x.view is not None)
            parts.append(text)
        return "-".join([self.operator.removeprefix("aten."), *parts, *([self.note] if self.note else [])])

    @property
    def overload(self) -> Any:
        space, name, overload = self.operator.split(".")
        return getattr(getattr(getattr(torch.ops, space), name), overload)

    def inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
        """Values of the operands that are inputs; an operator without any gets one that it does not read."""
        generator = torch.Generator().manual_seed(zlib.crc32(self.name.encode()) + batch)
        made = [o.make(batch, generator) for o in self.operands if not o.constant]
        return tuple(made) or (torch.zeros(2),)

    def dynamic_shapes(self) -> Any:
        if not self.dynamic:
            return None
        dim = Dim("batch", min=self.least, max=64)
        shapes = [{d: dim for d, n in enumerate(o.shape) if n == BATCH} for o in self.operands if not o.constant]
        return (tuple(shapes),)


class Operator(nn.Module):
    """The sample as a module: inputs in order of the operands, the result's tensors as a tuple."""

    def __init__(self, sample: Sample):
        super().__init__()
        self.sample = sample
        generator = torch.Generator().manual_seed(7)
        for i, operand in enumerate(sample.operands):
            if operand.constant:
                self.register_buffer(f"constant{i}", operand.make(0, generator))

    def forward(self, *inputs: torch.Tensor) -> Any:
        leaves, spec = pytree.tree_flatten((self.sample.args, dict(self.sample.kwargs)))
        given, position = iter(inputs), 0
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, Operand):
                value = getattr(self, f"constant{position}") if leaf.constant else next(given)
                leaves[k] = leaf.view(value) if leaf.view is not None else value
                position += 1
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        result = self.sample.overload(*args, **kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def widened(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same values with floats as float64."""
    return [v.double() if v.is_floating_point() else v.clone() for v in values]


def reference(sample: Sample, module: Operator, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """torch's results in float64."""
    wide = Operator(_wide(sample))
    for name, value in module.named_buffers():
        setattr(wide, name, widened([value])[0])
    with torch.no_grad():
        return list(wide(*widened(inputs)))


def _wide(sample: Sample) -> Sample:
    """The sample with float64 where it asks for another float type."""

    def widen(x: Any) -> Any:
        return torch.float64 if isinstance(x, torch.dtype) and x.is_floating_point else x

    args, kwargs = pytree.tree_map(widen, (sample.args, dict(sample.kwargs)))
    return Sample(sample.operator, args, kwargs)


def disagreement(sample: Sample, got: torch.Tensor, want: torch.Tensor, eager: torch.Tensor) -> str:
    """What is wrong with a result, in words; empty when nothing is.

    want: in float64, or exact. eager: torch's own result, which gives dtype and shape and a measure of what is hard.
    """
    if got.dtype != eager.dtype or got.shape != eager.shape:
        return f"{got.dtype}{list(got.shape)} instead of {eager.dtype}{list(eager.shape)}"
    if not got.is_floating_point():
        wrong = (got != eager).sum().item()
        return f"{wrong} of {got.numel()} values differ:\n{got}\n{eager}" if wrong else ""
    rounded = want.to(got.dtype)
    odd = ~torch.isfinite(rounded)
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    if not bool(same[odd].all()):
        wrong = odd & ~same
        where = torch.nonzero(wrong).tolist()[:4]
        return f"NaN or infinity differs at {where}: {got[wrong][:4]} for {rounded[wrong][:4]}"
    unit = torch.finfo(got.dtype).eps
    finite = want.double()[~odd].abs()
    size = finite.max() if sample.sums and finite.numel() else finite
    allowed = unit * (sample.ulps * size + sample.beside) + torch.finfo(got.dtype).tiny
    error = (got.double() - want.double())[~odd].abs()
    others = (eager.double() - want.double())[~odd].abs().nan_to_num(0.0)
    allowed = torch.maximum(allowed.expand(error.shape), 2 * others)
    if not bool((error <= allowed).all()):
        worst = int((error / allowed).argmax())
        places = f"{got[~odd].flatten()[worst]} for {want[~odd].flatten()[worst]}"
        count = f"{int((~(error <= allowed)).sum())} of {got.numel()} values are off"
        return f"{count}, the worst {places} (allowed {allowed.flatten()[worst]:.3g})"
    return ""


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Of a tensor whose last dimension are the channels."""
    return x.permute(0, x.dim() - 1, *range(1, x.dim() - 1))


def strided(x: torch.Tensor) -> torch.Tensor:
    return x[..., 1::2]
