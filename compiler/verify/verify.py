"""Is a package as right as eager torch? Both are compared with the float64 reference of the captured graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ...runtime.certificate import VERIFY_SEED, CaseReference, InputCheck, sample_positions
from ...runtime.errors import CompileError, RunError
from ..capture.draws import draws_random_numbers
from ..capture.graph import ModelGraph
from .check_inputs import example_sizes, input_checks, make_input, other_sizes
from .compare import difference, eager_error, error, errors
from .reference import eager, reference

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]

#: an output with fewer elements says little: the rounding errors of ten numbers vary by half from input to input
FEW = 1000
#: inputs over which the errors of such an output are averaged before it is refused
MORE = 16
#: where eager and reference share errors: torch's own normal numbers have some of 1e-6
SHARED_FLOOR = 1e-5


@dataclass(frozen=True)
class Tolerance:
    """What an output's error may be, given eager torch's own error: factor * eager + floor."""

    factor: float = 2.0
    floor: float = 1e-7

    def __call__(self, eager: float) -> float:
        return self.factor * eager + self.floor


@dataclass(frozen=True)
class CaseResult:
    """One set of sizes.

    Attributes:
        sizes: symbol name -> value.
        inputs: how the inputs were made.
        names: of the outputs.
        outputs: the reference; integers and booleans as the package gave them, within their tolerance.
        errors, eager, sampled: relative errors of the package, of eager, and of eager at the certificate's samples.
        from_examples: the inputs are the examples themselves, of which no certificate can tell.
        single: errors of the package at `inputs` alone, where `errors` and `eager` are averages over more inputs.
        found: what the package computed, where an output fails.
    """

    sizes: dict[str, int]
    inputs: tuple[InputCheck, ...]
    names: tuple[str, ...]
    outputs: tuple[torch.Tensor, ...]
    errors: tuple[float, ...]
    eager: tuple[float, ...]
    sampled: tuple[float, ...]
    tolerance: Tolerance = Tolerance()
    single: tuple[float, ...] = ()
    from_examples: bool = False
    found: tuple[torch.Tensor, ...] = ()

    @property
    def failures(self) -> tuple[int, ...]:
        """Outputs that are further from the reference than is tolerated."""
        return tuple(
            i for i, (e, own) in enumerate(zip(self.errors, self.eager, strict=True)) if not e <= self.tolerance(own)
        )

    def as_reference(self, entry: str) -> CaseReference:
        """For the package's certificate. Its tolerance also covers the samples, where eager may be further off, and
        inputs at which a small output was off by chance."""
        tolerances = [self.tolerance(max(a, b)) for a, b in zip(self.eager, self.sampled, strict=True)]
        if self.single:
            tolerances = [max(t, self.tolerance(e)) for t, e in zip(tolerances, self.single, strict=True)]
        return CaseReference(entry, self.sizes, self.inputs, [_array(t) for t in self.outputs], tolerances)

    def describe(self, i: int) -> str:
        """`logits at batch=1, seq=9: error 3.0e-04, eager 4.1e-07, tolerated 9.2e-07`"""
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        where = f"{self.names[i]} at {sizes}" if sizes else self.names[i]
        own = self.eager[i]
        return f"{where}: error {self.errors[i]:.1e}, eager {own:.1e}, tolerated {self.tolerance(own):.1e}"


@dataclass(frozen=True)
class VerifyResult:
    """All sets of sizes of one entry point."""

    entry: str
    cases: tuple[CaseResult, ...]

    @property
    def error(self) -> float:
        """The largest error of the package."""
        return max((e for case in self.cases for e in case.errors), default=0.0)

    @property
    def eager(self) -> float:
        """The largest error of eager."""
        return max((e for case in self.cases for e in case.eager), default=0.0)

    def references(self) -> list[CaseReference]:
        """For runtime.certificate.make_certificate."""
        return [case.as_reference(self.entry) for case in self.cases if not case.from_examples]


def check_sizes(graph: ModelGraph) -> list[dict[str, int]]:
    """The sets of sizes that are verified by default: the examples', and for dynamic graphs another one."""
    other = other_sizes(graph)
    return [example_sizes(graph), *([other] if other else [])]


def seeded(
    run: Callable[[ModelGraph, Sequence[torch.Tensor]], list[torch.Tensor]],
    graph: ModelGraph,
    inputs: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """A run of the graph whose random operators draw the numbers of VERIFY_SEED; torch's own generator stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(VERIFY_SEED)
        return run(graph, inputs)


def verify(
    graph: ModelGraph,
    run_package: Run,
    run_eager: Run | None = None,
    shapes: Sequence[Mapping[str, int]] | None = None,
    tolerance: Tolerance = Tolerance(),
    seed: int = 0,
) -> VerifyResult:
    """Runs the package, eager torch and the float64 reference on inputs made from seeds, and compares.

    Args:
        graph: as captured, before any pass.
        run_package: inputs to outputs, both flat, of the compiled entry point.
        run_eager: the model itself; by default the captured graph in its own dtypes, so that no module is needed.
        shapes: sets of sizes, symbol name -> value; by default `check_sizes(graph)`.
        tolerance: of the errors.
        seed: of the inputs; another one gives other inputs.

    Raises:
        CompileError: an output's error is more than 2 * eager's + 1e-7 (of a small output on the average of several
            inputs); it names the outputs, sizes and errors.
    """
    if draws_random_numbers(graph):
        tolerance = replace(tolerance, floor=max(tolerance.floor, SHARED_FLOOR))
    sizes = [dict(s) for s in (check_sizes(graph) if shapes is None else shapes)]
    trial = _Trial(graph, run_package, run_eager, tolerance)
    cases = tuple(trial.settled(s, i + 1000 * seed) for i, s in enumerate(sizes))
    details = [case.describe(i) for case in cases for i in case.failures]
    if details:
        unsteady = [line for case in cases for line in trial.unsteady(case)]
        fault = "threads or memory, of the compiler or of this machine" if unsteady else "the compiler"
        raise CompileError(
            f"entry point '{graph.name}': the compiled code is not as accurate as eager torch",
            details=details + unsteady,
            hint=f"This is a fault of {fault}; nothing was written. `--no-verify` writes the package all the same.",
        )
    return VerifyResult(graph.name, cases)


def _of_torch(
    run: Callable[..., list[torch.Tensor]], graph: ModelGraph, inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The graph's results in torch, which may refuse the example inputs when it runs them."""
    try:
        return _real(seeded(run, graph, inputs))
    except (RuntimeError, IndexError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CompileError(
            f"entry point '{graph.name}': torch itself does not run the model on its example inputs: {reason}",
            details=[note for note in getattr(error, "__notes__", ()) if note],
        ) from error


@dataclass(frozen=True)
class _Trial:
    """What is compared, for any sizes and inputs."""

    graph: ModelGraph
    run_package: Run
    run_eager: Run | None
    tolerance: Tolerance

    def settled(self, sizes: dict[str, int], index: int) -> CaseResult:
        """The case; when only small outputs fail, their errors are averaged (root mean square) over MORE inputs."""
        case = self.case(sizes, index)
        if not case.failures or any(case.outputs[i].numel() >= FEW for i in case.failures):
            return case
        more = [self.case(sizes, index + 100 * (j + 1)) for j in range(MORE - 1)]
        return replace(
            case,
            errors=_averages([c.errors for c in (case, *more)]),
            eager=_averages([c.eager for c in (case, *more)]),
            single=case.errors,
        )

    def own(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What eager computes."""
        if self.run_eager is not None:
            return _real(self.run_eager([t.clone() for t in inputs]))
        return _real(seeded(eager, self.graph, inputs))

    def found(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the package computes."""
        return _real(self.run_package([t.clone() for t in inputs]))

    def case(self, sizes: dict[str, int], index: int) -> CaseResult:
        """One set of inputs, made from the index."""
        graph, tolerance = self.graph, self.tolerance
        checks = input_checks(graph, sizes, index)
        inputs = [make_input(check) for check in checks]
        of_values = (RunError,) if graph.computed else ()  # the package alone knows what is asked of sizes it finds
        try:
            wanted = _real(seeded(reference, graph, inputs))
            own = self.own(inputs)
            found = self.found(inputs)
        except (RuntimeError, IndexError, *of_values):
            checks, inputs = (), list(graph.examples)  # values of which the model asks more than those made here have
            own = self.own(inputs) if self.run_eager is not None else _of_torch(eager, graph, inputs)
            wanted, sizes = _of_torch(reference, graph, inputs), example_sizes(graph)
            found = self.found(inputs)
        if graph.computed and any(w.shape != y.shape for w, y in zip(wanted, own, strict=True)):
            # a rounding error changed a size: eager's own is the reference, and its error is not known
            wanted = [w if w.shape == y.shape else _wide(y) for w, y in zip(wanted, own, strict=True)]
            tolerance = replace(tolerance, floor=max(tolerance.floor, SHARED_FLOOR))
        if len(found) != len(wanted):
            raise CompileError(f"entry point '{graph.name}': {len(found)} outputs, the model has {len(wanted)}")
        outputs = [r if r.is_floating_point() else y for y, r in zip(found, wanted, strict=True)]
        result = CaseResult(
            sizes,
            checks,
            tuple(spec.name for spec in graph.outputs),
            tuple(outputs),
            tuple(errors(found, wanted)),
            tuple(eager_error(own, wanted)),
            tuple(_sampled_error(y, r) for y, r in zip(own, wanted, strict=True)),
            tolerance,
            from_examples=bool(graph.inputs) and not checks,
        )
        return replace(result, found=tuple(found)) if result.failures else result

    def unsteady(self, case: CaseResult) -> Iterator[str]:
        """Which outputs that fail come out otherwise when the package runs again; state makes them differ anyway."""
        if not case.failures or self.graph.in_place:
            return
        again = self.found([make_input(check) for check in case.inputs] or list(self.graph.examples))
        for i in case.failures:
            if what := difference(case.found[i], again[i]):
                yield f"{case.names[i]}: a second run of the package differs in {what}"


def _averages(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(math.sqrt(math.fsum(e * e for e in column) / len(rows)) for column in zip(*rows, strict=True))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _real(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Complex tensors as their parts, in a last dimension of two."""
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]


def _sampled_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The error over the elements that a certificate keeps."""
    if found.shape != wanted.shape:
        return math.inf
    at = torch.from_numpy(sample_positions(wanted.numel()))
    return error(found.reshape(-1)[at], wanted.reshape(-1)[at])


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()
