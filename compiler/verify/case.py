"""The result of a comparison at one set of sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ...runtime.certificate import SAMPLES, CaseReference, InputCheck

__all__ = ["DEFAULT_TOLERANCE", "SHARED_FLOOR", "CaseResult", "Tolerance"]

#: where eager and reference share errors: torch's own normal numbers have some of 1e-6
SHARED_FLOOR = 1e-5
#: an output with fewer elements may be off by several times its mean error, or eager by a fraction of its own
FEW = 64


@dataclass(frozen=True)
class Tolerance:
    """What an output's error may be, given eager torch's own error: factor * eager + floor."""

    factor: float = 2.0
    floor: float = 1e-7

    def __call__(self, eager: float) -> float:
        return self.factor * eager + self.floor


DEFAULT_TOLERANCE = Tolerance()


@dataclass(frozen=True)
class CaseResult:
    """One set of sizes.

    Attributes:
        sizes: symbol name -> value.
        inputs: how the inputs were made.
        names: of the outputs.
        outputs: the reference; integers, booleans and what depends on rounding alone as the package gave them.
        errors, eager, sampled: relative errors of the package, of eager, and of eager at the certificate's samples.
        allowed: what each error may be.
        single: errors of the package at `inputs` alone, where `errors` and `eager` are those of several inputs.
        runs: of how many inputs the errors are.
        doubtful: how many elements of each output at `inputs` were left out, because they depend on rounding or on the
            order of equal elements alone.
        from_examples: the inputs are made from the examples themselves, of which no certificate can tell.
        unsteady: what differs in a second run of the package, where an output fails.
    """

    sizes: dict[str, int]
    inputs: tuple[InputCheck, ...]
    names: tuple[str, ...]
    outputs: tuple[torch.Tensor, ...]
    errors: tuple[float, ...]
    eager: tuple[float, ...]
    sampled: tuple[float, ...]
    allowed: tuple[float, ...]
    tolerance: Tolerance = DEFAULT_TOLERANCE
    single: tuple[float, ...] = ()
    runs: int = 1
    doubtful: tuple[int, ...] = ()
    from_examples: bool = False
    unsteady: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[int, ...]:
        """Outputs that are further from the reference than is tolerated."""
        return tuple(i for i, (e, most) in enumerate(zip(self.errors, self.allowed, strict=True)) if not e <= most)

    def as_reference(self, entry: str) -> CaseReference:
        """For the package's certificate. Its tolerance also covers the samples, where eager may be further off, and
        inputs at which a small output was off by chance."""
        return CaseReference(
            entry, self.sizes, self.inputs, [_array(t) for t in self.outputs],
            [self._certified(i) for i in range(len(self.outputs))],
        )  # fmt: skip

    def _certified(self, i: int) -> float:
        eager = [e for e in (self.eager[i], self.sampled[i]) if math.isfinite(e)]
        tolerance = max(self.allowed[i], self.tolerance(max(eager, default=0.0)))
        if self.single:
            tolerance = max(tolerance, self.tolerance(self.single[i]))
        count = min(self.outputs[i].numel(), SAMPLES)
        return tolerance * (1 + 4 / math.sqrt(count)) if 0 < count < FEW else tolerance

    def describe(self, i: int) -> str:
        """`logits at batch=1, seq=9: error 3.0e-04, eager 4.1e-07, tolerated 9.2e-07`"""
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        where = f"{self.names[i]} at {sizes}" if sizes else self.names[i]
        of = f" over {self.runs} inputs" if self.runs > 1 else ""
        text = f"{where}: error {self.errors[i]:.1e}, eager {self.eager[i]:.1e}, tolerated {self.allowed[i]:.1e}{of}"
        left_out = self.doubtful[i] if self.doubtful else 0
        total = self.outputs[i].numel()
        return f"{text}; {left_out} of {total} elements depend on rounding alone" if left_out else text


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()
