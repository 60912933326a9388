"""The verdict on an output: in the first place by one set of inputs, in close cases by more.

1. One draw of inputs: an output's error may be twice eager's and 1e-7.
2. If it is more, or eager's error is that of few elements: those that depend on how a number was rounded, or on the
   order of equal elements, are left out. The float64 run with noise tells which they are (condition.py).
3. If it is still more: up to 63 further draws. The squares of all differences are pooled, and so are the squares of
   the reference: an input at which the result is near 0 counts for as much as it weighs. What is tolerated follows from
   eager's error, or from that of the noisy float64 run if it is larger, over the same inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import torch
from torch import Tensor

from ...runtime.certificate import sample_positions
from .case import SHARED_FLOOR, CaseResult, Tolerance
from .check_inputs import Draw
from .compare import Deviation, deviation, difference
from .condition import Noise
from .trial import Compared, Sample, Trial

__all__ = ["judged", "mostly_jumps"]

#: patterns of noise that are tried for the first inputs where something fails, else, and for each further one
PATTERNS, FURTHER = 8, 4
#: an element of eager jumped if it is off by so many times the median of all
JUMP = 32.0
#: after so many inputs a verdict is tried
STAGES = (4, 16, 64)
#: so many elements in all need no more than the second stage, nor the first where the error is twice as large
FEW = 1000
#: of fewer elements: what exceeds the tolerance by this factor is no close case
HOPELESS = 16.0
#: eager in place of the reference: what a rounding more or less may be, in units of its dtype's eps
ROUNDINGS = 16.0

Masks = Sequence[Tensor | None]


def judged(trial: Trial, draw: Draw, tolerance: Tolerance) -> CaseResult:
    """The result of a draw; it fails when the package is less accurate than eager, at inputs like these."""
    sample = trial.sample(draw)
    if sample.uncertain:
        tolerance = replace(tolerance, floor=max(tolerance.floor, SHARED_FLOOR))
    case, doubtful = _case(trial, sample, tolerance), _no_masks(sample)
    if trial.chooses and any(mostly_jumps(c) for c in sample.compared):
        doubtful = _doubtful(trial, sample)
        case = _case(trial, sample, tolerance, doubtful)
    if not case.failures:
        return case
    case, doubtful = _without_doubt(trial, sample, case, doubtful)
    if case.failures:
        case = _pooled(trial, sample, draw, case, doubtful)
    return replace(case, unsteady=_unsteady(trial, sample, case)) if case.failures else case


def mostly_jumps(compared: Compared) -> bool:
    """Whether eager's error is that of few elements: its own jumps, which are no measure for other elements."""
    if compared.overflowed is not None or not compared.wanted.numel():
        return False
    if not compared.wanted.is_floating_point():
        return not torch.equal(compared.own, compared.wanted)
    off = torch.nan_to_num((compared.own.double() - compared.wanted).abs())
    far = off > JUMP * _usual(off, compared)
    return bool(off[far].square().sum() > off.square().sum() / 2)


def _usual(off: Tensor, compared: Compared) -> Tensor:
    """The error that elements have, the median. Where most have none, as in a cache of which a step writes little, that
    of those that have one; they may all be jumps, and then it is what a rounding of the largest element is."""
    median = off.median()
    if median > 0:
        return median
    some = off[off > 0]
    if not some.numel():
        return median
    largest = torch.nan_to_num(compared.wanted, posinf=0.0, neginf=0.0).abs().max()
    return torch.minimum(some.median(), largest.double() * torch.finfo(compared.own.dtype).eps)


def _no_masks(sample: Sample) -> list[Tensor | None]:
    return [None] * len(sample.compared)


def _case(trial: Trial, sample: Sample, tolerance: Tolerance, doubtful: Masks = ()) -> CaseResult:
    masks = list(doubtful) or _no_masks(sample)
    pairs = list(zip(sample.compared, masks, strict=True))
    own = tuple(c.of_eager(mask).error for c, mask in pairs)
    return CaseResult(
        sample.attempt.sizes,
        sample.checks,
        tuple(spec.name for spec in trial.graph.outputs),
        tuple(_certified(*row) for row in zip(sample.found, sample.wanted, sample.compared, masks, strict=True)),
        tuple(c.of_package(mask).error for c, mask in pairs),
        own,
        tuple(
            _sampled_error(y, *row) for y, row in zip(sample.own, zip(sample.wanted, masks, strict=True), strict=True)
        ),
        tuple(tolerance(e) + _extra(c) for e, c in zip(own, sample.compared, strict=True)),
        tolerance,
        doubtful=tuple(0 if mask is None else int(mask.sum()) for mask in masks),
        from_examples=sample.attempt.from_examples,
    )


def _extra(compared: Compared) -> float:
    """On top of the tolerance where eager is the reference: its own error is not known."""
    own = compared.own.dtype
    return ROUNDINGS * torch.finfo(own).eps if compared.eager_is_reference and own.is_floating_point else 0.0


def _certified(found: Tensor, wanted: Tensor, compared: Compared, doubtful: Tensor | None) -> Tensor:
    """What a certificate holds: the reference; what it does not decide, as the package gave it."""
    if not wanted.is_floating_point() or found.shape != wanted.shape:
        return found
    if compared.eager_is_reference:
        return found.double()
    left = [mask for mask in (doubtful, compared.settled) if mask is not None and mask.shape == wanted.shape]
    for mask in left:
        wanted = torch.where(mask, found.double(), wanted)
    return wanted


def _sampled_error(found: Tensor, wanted: Tensor, doubtful: Tensor | None) -> float:
    """The error over the elements that a certificate keeps."""
    if found.shape != wanted.shape:
        return math.inf
    at = torch.from_numpy(sample_positions(wanted.numel()))
    skip = doubtful.reshape(-1)[at] if doubtful is not None and doubtful.shape == wanted.shape else None
    return deviation(found.reshape(-1)[at], wanted.reshape(-1)[at], skip).error


def _without_doubt(
    trial: Trial, sample: Sample, case: CaseResult, masks: list[Tensor | None]
) -> tuple[CaseResult, list[Tensor | None]]:
    """The case without the elements that jump with noise, and their masks; patterns are tried until nothing fails."""
    for seed in range(FURTHER, FURTHER + PATTERNS) if trial.chooses else ():
        masks = _joined(masks, trial.jumping(sample, seed))
        case = _case(trial, sample, case.tolerance, masks)
        if not case.failures:
            break
    return case, masks


def _joined(masks: Masks, others: Masks) -> list[Tensor | None]:
    return [b if a is None else a if b is None else a | b for a, b in zip(masks, others, strict=True)]


# -- several inputs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One output's deviations at one set of inputs: of the package, of eager, and of the noisy reference."""

    package: Deviation
    eager: Deviation
    noise: Deviation
    extra: float

    def __add__(self, other: _Row) -> _Row:
        return _Row(
            self.package + other.package, self.eager + other.eager, self.noise + other.noise,
            max(self.extra, other.extra),
        )  # fmt: skip

    def allowed(self, tolerance: Tolerance) -> float:
        """A mean over few elements is uncertain itself: over n of them by about 1 / sqrt(n)."""
        known = [e for e in (self.eager.error, self.noise.error) if math.isfinite(e)]
        certainty = 1 + 2 / math.sqrt(max(self.package.count, 1))
        return tolerance(max(known, default=0.0)) * certainty + self.extra


def _rows(trial: Trial, sample: Sample, known: Masks, number: int) -> list[_Row]:
    """known: masks of elements that jump, if there are any yet."""
    masks = _joined(known, _doubtful(trial, sample))
    noise = trial.noisy(sample, Noise(0 if trial.chooses else number))  # a pattern whose jumps are known
    return [
        _Row(c.of_package(mask), c.of_eager(mask), deviation(moved, c.wanted, mask), _extra(c))
        for c, mask, moved in zip(sample.compared, masks, noise, strict=True)
    ]


def _pooled(trial: Trial, sample: Sample, draw: Draw, case: CaseResult, doubtful: Masks) -> CaseResult:
    """The case with the errors of several inputs."""
    tolerance, first = case.tolerance, case
    rows = [_rows(trial, sample, doubtful, 0)]
    for stage in STAGES:
        while len(rows) < stage:
            more = trial.sample(replace(draw, index=draw.index + 100 * len(rows)))
            rows.append(_rows(trial, more, _no_masks(more), len(rows)))
        totals = [reduce(add, column) for column in zip(*rows, strict=True)]
        case = replace(
            first,
            errors=tuple(t.package.error for t in totals),
            eager=tuple(t.eager.error for t in totals),
            allowed=tuple(t.allowed(tolerance) for t in totals),
            single=first.errors,
            runs=len(rows),
        )
        if not case.failures or _settled(case, totals, stage):
            break
    return case


def _doubtful(trial: Trial, sample: Sample) -> list[Tensor | None]:
    masks = _no_masks(sample)
    for seed in range(FURTHER if trial.chooses else 0):
        masks = _joined(masks, trial.jumping(sample, seed))
    return masks


def _settled(case: CaseResult, totals: Sequence[_Row], stage: int) -> bool:
    """Whether more inputs would not change the verdict of a failing case."""

    def decided(i: int) -> bool:
        many = totals[i].package.count >= FEW
        factor = 1.0 if many and stage >= STAGES[1] else 2.0 if many else HOPELESS
        return not case.errors[i] <= factor * case.allowed[i]

    return any(decided(i) for i in case.failures)


def _unsteady(trial: Trial, sample: Sample, case: CaseResult) -> tuple[str, ...]:
    """Which outputs that fail come out otherwise when the package runs again; state makes them differ anyway."""
    if trial.graph.in_place:
        return ()
    again = trial.found(sample.attempt.inputs)
    told = ((case.names[i], difference(sample.found[i], again[i])) for i in case.failures)
    return tuple(f"{name}: a second run of the package differs in {what}" for name, what in told if what)
