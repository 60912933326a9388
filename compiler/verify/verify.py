"""Is a package as right as eager torch? Both are compared with the float64 reference of the captured graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...runtime.certificate import CaseReference
from ...runtime.errors import CompileError
from ..model.graph import ModelGraph
from ..model.random_operators import draws_random_numbers
from .case import DEFAULT_TOLERANCE, SHARED_FLOOR, CaseResult, Tolerance
from .check_inputs import Draw, draws
from .judge import judged
from .trial import Run, Trial

__all__ = ["CaseResult", "Run", "Tolerance", "VerifyResult", "summarise", "verify"]


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


def verify(
    graph: ModelGraph,
    run_package: Run,
    run_eager: Run | None = None,
    shapes: Sequence[Mapping[str, int]] | None = None,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    seed: int = 0,
) -> VerifyResult:
    """Runs the package, eager torch and the float64 reference on inputs made from seeds, and compares.

    Args:
        graph: as captured, before any pass.
        run_package: inputs to outputs, both flat, of the compiled entry point.
        run_eager: the model itself; by default the captured graph in its own dtypes, so that no module is needed.
        shapes: sets of sizes, symbol name -> value; by default `check_inputs.draws(graph)`.
        tolerance: of the errors.
        seed: of the inputs; another one gives other inputs.

    Raises:
        CompileError: an output's error is more than 2 * eager's + 1e-7 (judge.py: what of a close case); it names the
            outputs, sizes and errors.
    """
    if draws_random_numbers(graph):
        tolerance = replace(tolerance, floor=max(tolerance.floor, SHARED_FLOOR))
    given = [] if shapes is None else [Draw(dict(s), i + 1000 * seed) for i, s in enumerate(shapes)]
    trial = Trial(graph, run_package, run_eager)
    cases = tuple(judged(trial, draw, tolerance) for draw in given or draws(graph, seed))
    details = [case.describe(i) for case in cases for i in case.failures]
    if details:
        unsteady = [line for case in cases for line in case.unsteady]
        fault = "threads or memory, of the compiler or of this machine" if unsteady else "the compiler"
        raise CompileError(
            f"entry point '{graph.name}': the compiled code is not as accurate as eager torch",
            details=details + unsteady,
            hint=f"This is a fault of {fault}; nothing was written. `--no-verify` writes the package all the same.",
        )
    return VerifyResult(graph.name, cases)


def summarise(results: Sequence[VerifyResult]) -> str:
    """One line for a person about the comparison of all entry points."""
    worst = max(results, key=lambda result: result.error)
    left_out = sum(count for result in results for case in result.cases for count in case.doubtful)
    remark = f"; {left_out} elements depend on rounding alone" if left_out else ""
    return f"error {worst.error:.1e} against float64 (eager {worst.eager:.1e}){remark}"
