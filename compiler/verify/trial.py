"""One run of everything that is compared: float64 reference, eager torch, package; and what is comparable of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from ...runtime.certificate import VERIFY_SEED, InputCheck
from ...runtime.errors import CompileError, RunError
from ..model.graph import ModelGraph
from .check_inputs import Attempt, Draw, attempts
from .compare import Deviation, all_finite, deviation, same
from .condition import LARGE, Noise, chooses, jumps, noisy
from .index_outputs import Places, picked, place_outputs
from .reference import eager, reference

__all__ = ["Compared", "Run", "Sample", "Trial", "seeded"]

Run = Callable[[list[Tensor]], Sequence[Tensor]]


def seeded(
    run: Callable[[ModelGraph, Sequence[Tensor]], list[Tensor]], graph: ModelGraph, inputs: Sequence[Tensor]
) -> list[Tensor]:
    """A run of the graph whose random operators draw the numbers of VERIFY_SEED; torch's own generator stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(VERIFY_SEED)
        return run(graph, inputs)


@dataclass(frozen=True)
class Compared:
    """One output as it is compared.

    Attributes:
        found, own, wanted: of the package, of eager and of the reference; of places, the elements that lie there.
        overflowed: mask of elements that are not finite in eager, in whose narrower dtype they do not fit, though they
            are in the reference; None: there are none.
        settled: of those the ones at which the package has what eager has.
        eager_is_reference: the reference cannot be compared with eager, which stands in its place.
    """

    found: Tensor
    own: Tensor
    wanted: Tensor
    overflowed: Tensor | None = None
    settled: Tensor | None = None
    eager_is_reference: bool = False

    def of_package(self, doubtful: Tensor | None) -> Deviation:
        """How far the package is from the reference; doubtful: a mask of elements that are left out."""
        return deviation(self.found, self.wanted, _either(self.settled, doubtful))

    def of_eager(self, doubtful: Tensor | None) -> Deviation:
        if doubtful is None:
            return self._of_eager
        return deviation(self.own, self.wanted, _either(self.overflowed, doubtful))

    @cached_property
    def _of_eager(self) -> Deviation:
        return deviation(self.own, self.wanted, self.overflowed)


def _either(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a | b


def _compared(found: Tensor, own: Tensor, wanted: Tensor) -> Compared:
    if own.shape != wanted.shape:
        return Compared(found, own, _wide(own), eager_is_reference=True)
    if not wanted.is_floating_point() or found.shape != wanted.shape:
        return Compared(found, own, wanted)
    value = Compared(found, own, wanted)
    if not all_finite(own):
        over = ~torch.isfinite(own) & torch.isfinite(wanted)
        if bool(over.any()):
            value = Compared(found, own, wanted, over, over & same(found.double(), own.double()))
    if value.of_eager(None).squares != math.inf:
        return value
    return Compared(found, own, own.double(), eager_is_reference=True)


@dataclass(frozen=True)
class Sample:
    """One set of inputs and all that was computed of it.

    wanted, own, found: the outputs of reference, eager and package; compared: how each is judged; operands: what places
    are taken of; uncertain: a rounding error changed a size, so that eager stands for the reference.
    """

    attempt: Attempt
    wanted: tuple[Tensor, ...]
    own: tuple[Tensor, ...]
    found: tuple[Tensor, ...]
    compared: tuple[Compared, ...]
    operands: dict[str, Tensor]
    uncertain: bool = False

    @property
    def checks(self) -> tuple[InputCheck, ...]:
        return self.attempt.checks

    @property
    def telling(self) -> bool:
        """Whether something can be said of each output: eager did not overflow, and not everything is NaN."""
        return all(
            c.overflowed is None and not c.eager_is_reference and (not c.wanted.numel() or _some_finite(c.wanted))
            for c in self.compared
        )


def _some_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or all_finite(tensor) or bool(torch.isfinite(tensor).any())


@dataclass(frozen=True)
class Trial:
    """What is run, for any draw of inputs.

    Attributes:
        graph: as captured.
        run_package: inputs to outputs, flat.
        run_eager: the model itself; None: the captured graph in its own dtypes.
    """

    graph: ModelGraph
    run_package: Run
    run_eager: Run | None

    @cached_property
    def places(self) -> tuple[Places, ...]:
        return place_outputs(self.graph)

    @cached_property
    def chooses(self) -> bool:
        return chooses(self.graph)

    def sample(self, draw: Draw) -> Sample:
        """The first inputs of the draw that tell something; else the first that run."""
        of_values = (RunError,) if self.graph.computed else ()  # the package alone knows what is asked of such sizes
        first: Sample | None = None
        for attempt in attempts(self.graph, draw):
            if attempt.final and first is None:
                return self._sample(attempt, last=True)
            try:
                sample = self._sample(attempt)
            except (RuntimeError, IndexError, *of_values):
                continue
            if sample.telling:
                return sample
            first = first or sample
        assert first is not None
        return first

    def _sample(self, attempt: Attempt, last: bool = False) -> Sample:
        inputs, kept = list(attempt.inputs), dict.fromkeys(p.operand for p in self.places)
        run = partial(self._of_torch if last else _plain, self.graph, inputs)
        own = run(eager) if self.run_eager is None else _real(self.run_eager([t.clone() for t in inputs]))
        wanted = run(partial(reference, keep=kept))
        found = self.found(inputs)
        if len(found) != len(wanted):
            raise CompileError(f"entry point '{self.graph.name}': {len(found)} outputs, the model has {len(wanted)}")
        moved = self.graph.computed and any(w.shape != y.shape for w, y in zip(wanted, own, strict=True))
        if moved:
            wanted = [w if w.shape == y.shape else _wide(y) for w, y in zip(wanted, own, strict=True)]
        operands = {name: value for name, value in kept.items() if value is not None}
        triples = zip(*(self._as_elements(t, operands) for t in (found, own, wanted)), strict=True)
        return Sample(
            attempt, tuple(wanted), tuple(own), tuple(found), tuple(_compared(*t) for t in triples), operands,
            bool(moved),
        )  # fmt: skip

    def found(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """What the package computes."""
        return _real(self.run_package([t.clone() for t in inputs]))

    def noisy(self, sample: Sample, noise: Noise) -> list[Tensor]:
        """The reference with noise, as it is compared."""
        outputs = _plain(self.graph, list(sample.attempt.inputs), partial(noisy, noise=noise))
        return self._as_elements(outputs, sample.operands)

    def jumping(self, sample: Sample, seed: int) -> list[Tensor | None]:
        """Masks of the elements of each output that jump with this pattern of noise; None: other sizes."""
        small, large = (self.noisy(sample, Noise(seed, a, bool(seed % 2))) for a in (1.0, LARGE))
        return [
            jumps(c.wanted, a, b) if c.wanted.shape == a.shape == b.shape else None
            for c, a, b in zip(sample.compared, small, large, strict=True)
        ]

    def _as_elements(self, outputs: Sequence[Tensor], operands: dict[str, Tensor]) -> list[Tensor]:
        """The outputs, elements instead of places."""
        result = list(outputs)
        for p in self.places:
            if p.operand in operands and p.output < len(result):
                result[p.output] = picked(p, result[p.output], operands[p.operand])
        return result

    def _of_torch(self, graph: ModelGraph, inputs: Sequence[Tensor], run: Callable[..., list[Tensor]]) -> list[Tensor]:
        """The graph's results in torch, which may refuse the example inputs when it runs them."""
        try:
            return _plain(graph, inputs, run)
        except (RuntimeError, IndexError) as error:
            reason = str(error).strip().splitlines()[0]
            raise CompileError(
                f"entry point '{graph.name}': torch itself does not run the model on its example inputs: {reason}",
                details=[note for note in getattr(error, "__notes__", ()) if note],
            ) from error


def _plain(graph: ModelGraph, inputs: Sequence[Tensor], run: Callable[..., list[Tensor]]) -> list[Tensor]:
    return _real(seeded(run, graph, inputs))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _real(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Complex tensors as their parts, in a last dimension of two."""
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
