"""Programs of the further sources, compared exactly: their own inputs, then special values in the same package.

NaN, infinities and the signs of zeros have to be where eager on the same device has them; other numbers are as close as
those of op_db's samples. What eager refuses for its values (an index out of range), the package refuses. Where eager
itself specifies nothing, `unspecified.py` says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import torch
from mycc.runtime.errors import Error as MyccError
from torch.testing._comparison import default_tolerances
from torch.utils import _pytree as pytree

from .catalog import (
    CHOICES,
    DTYPES,
    SEED,
    Call,
    Entry,
    RandomEntry,
    as_tensor,
    disagreement,
    exact_results,
    in_float64,
    tolerance,
)
from .compile import Crash, Prepared, first_line, flat_results
from .sources import Program, apart, module_programs, op_programs
from .tally import Group, Tally
from .unspecified import Free, elementwise, free_of
from .values import duplicate, filled, fills

REFERENCES, VARIANTS, MODULES = 4, 1, 3  # programs of an entry: of its reference inputs, of each variant, of a module
Case = tuple[int, Call, "list[Any] | Exception"]  # number of a call, the call with a fill's values, what eager gives
SECONDS = 20.0  # for the special values of an entry


def groups_of_edges(tally: Tally, kind: str, batch: dict[str, Any]) -> list[Group]:
    """The programs that torch itself takes, as one group; those that draw random numbers alone."""
    dtype = DTYPES[tally.dtype]
    programs = (
        module_programs(tally.entry, dtype, MODULES)
        if kind == "modules"
        else op_programs(tally.entry, dtype, REFERENCES, VARIANTS)
    )
    device = "cuda" if batch.get("device") else "cpu"
    together: list[tuple[Program, list[Any]]] = []
    alone: list[tuple[Program, list[Any]]] = []
    for program in programs:
        want = _eager(program.call, device)
        if not isinstance(want, Exception) and not _spills(program.call, want):
            (alone if _drew(device) else together).append((program, want))
    parts = [together] * bool(together) + [[one] for one in alone]
    firsts = [0, *(i + len(together) for i in range(len(alone)))] if together else range(len(alone))
    return [_group(tally, part, first) for part, first in zip(parts, firsts, strict=True)]


def _spills(call: Call, want: Sequence[Any]) -> bool:
    """Whether eager itself writes past the strides of out (avg_pool2d on a GPU)."""
    return call.spread and any(bool((gaps != 1).any()) for gaps in apart(want)[len(want) :])


def _group(tally: Tally, part: Sequence[tuple[Program, list[Any]]], first: int) -> Group:
    calls, wants = tuple(p.call for p, _ in part), tuple(want for _, want in part)
    return Group(tally, calls, wants, tuple(p.source for p, _ in part), first)


def _eager(call: Call, device: str) -> list[Any] | Exception:
    """torch's results, flat and on the CPU; what torch raises."""
    torch.manual_seed(SEED)
    try:
        # convolutions of float32 are products of float32 numbers
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            there = call.fresh() if device == "cpu" else call.on(device)
            results = pytree.tree_leaves(there(*(duplicate(x) for x in there.inputs)))
            return [r.cpu() if isinstance(r, torch.Tensor) else r for r in results if r is not None]
    except Exception as error:
        if "CUDA error" in str(error):  # no later call of this process would work
            os._exit(_CUDA_ERROR)
        return error


_CUDA_ERROR = 3


def _drew(device: str) -> bool:
    """Whether the call of eager drew random numbers."""
    if device == "cuda":
        return int(torch.cuda.get_rng_state()[8:].view(torch.int64)) != 0  # Philox: the seed, then how many were drawn
    return not torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(SEED).get_state())


def compare_exactly(group: Group, p: Prepared, package: Any, random: bool, device: str) -> None:
    """Counts the programs of a group, and its special values. Raises RunError and Crash of its own inputs."""
    entry = group.tally.entry
    random = random or entry.random
    judged = RandomEntry(entry.name, entry.op) if random else entry
    found = _run(group, p, package, [call.inputs for call in group.calls])
    for i, (call, got, want) in enumerate(zip(group.calls, found, group.wants, strict=True)):
        problem = judge(judged, call, got, want, device=device)
        group.tally.add(group.sources[i], *_verdict(problem, i + group.first, ""))
    if not random and not entry.empty:
        _specials(group, p, package, device)


def _verdict(problem: str, number: int, fill: str) -> tuple[str, str]:
    if not problem:
        return "right", ""
    status = "crash" if problem.startswith("crash") else "wrong"
    return status, f"program {number}{', ' + fill if fill else ''}: {problem}"


def _run(group: Group, p: Prepared, package: Any, inputs: Sequence[Sequence[torch.Tensor]]) -> list[list[Any]]:
    """The package's results of each call. Raises MyccError for a refusal, Crash for what else is raised."""
    if package.manifest.get("state"):
        package.reset_state()
    try:
        result = package.entry(p.name)(*(duplicate(x) for given in inputs for x in given), seed=SEED)
    except MyccError:
        raise
    except Exception as error:
        raise Crash(f"run: {type(error).__name__}: {first_line(str(error))}") from error
    return flat_results(result, len(group.calls))


def _specials(group: Group, p: Prepared, package: Any, device: str) -> None:
    """Every fill of every call's inputs."""
    end = time.monotonic() + SECONDS
    everything = [x for call in group.calls for x in call.inputs]
    for name, fill in fills(everything, elementwise(group.tally.entry)):
        if time.monotonic() > end:
            return
        calls = [(i, call, filled(call.inputs, fill)) for i, call in enumerate(group.calls)]
        cases = [(i, call.with_inputs(inputs)) for i, call, inputs in calls if inputs is not None]
        cases = [(i, call) for i, call in cases if not free_of(group.tally.entry, call, name, device).skipped]
        if cases:
            _special(group, p, package, name, device, [(i, call, _wanted(call, device)) for i, call in cases])


def _wanted(call: Call, device: str) -> list[Any] | Exception:
    """Eager's results of special values. What a CPU refuses, a GPU is not asked for: it would end with the process."""
    if device != "cpu":
        there = _eager(call, "cpu")
        if isinstance(there, Exception):
            return there
    return _eager(call, device)


def _special(group: Group, p: Prepared, package: Any, name: str, device: str, cases: Sequence[Case]) -> None:
    """One fill: all calls that eager takes together; one by one those that it refuses, and all when the run fails."""
    own = [call.inputs for call in group.calls]
    good = [(i, call, want) for i, call, want in cases if not isinstance(want, Exception)]
    alone = [case for case in cases if isinstance(case[2], Exception)]
    given = list(own)
    for i, call, _ in good:
        given[i] = call.inputs
    try:
        found = _run(group, p, package, given) if good else []
        for i, call, want in good:
            problem = judge(group.tally.entry, call, found[i], want, name, device)
            group.tally.add("special", *_verdict(problem, i + group.first, name))
    except (MyccError, Crash):
        alone = list(cases)
    for i, call, want in alone:
        problem = _alone(group, p, package, [*own[:i], call.inputs, *own[i + 1 :]], (i, call, want), name, device)
        group.tally.add("special", *_verdict(problem, i + group.first, name))


_BY_PIVOT = ("matrix is singular", "not positive-definite")  # said of a pivot of 0, which roundings decide


def _alone(group: Group, p: Prepared, package: Any, given: Sequence[Any], case: Case, name: str, device: str) -> str:
    """What is wrong with one call whose inputs are a fill's."""
    i, call, want = case
    entry = group.tally.entry
    try:
        got = _run(group, p, package, given)[i]
    except MyccError as error:
        free = free_of(entry, call, name, device)
        pivot = free.values and free.errors and any(text in str(error) for text in _BY_PIVOT)
        return "" if isinstance(want, Exception) or pivot else f"run: {first_line(str(error))}"
    except Crash as error:
        return f"crash: {error}"
    if isinstance(want, Exception):
        return "" if free_of(entry, call, name, device).errors else f"eager raises: {first_line(str(want))[:120]}"
    return judge(entry, call, got, want, name, device)


def judge(
    entry: Entry, call: Call, got: Sequence[Any], want: Sequence[Any], fill: str = "", device: str = "cpu"
) -> str:
    """What is wrong with results, in words; empty when nothing is. `fill`: the name of the special values."""
    free = free_of(entry, call, fill, device)
    if call.spread and entry.name in CHOICES and len(want) == 2:  # values and places
        got, want = apart(got), apart(want)
    problem = disagreement(entry, call, got, want)
    if entry.random or entry.empty:
        return problem
    if problem:
        if free.values or len(got) != len(want):
            return "" if free.values else problem
        floats = all(isinstance(w, torch.Tensor) and w.is_floating_point() for w in want)
        wide = exact_results(entry, call) or in_float64(call, integers=floats and elementwise(entry))
        wide = wide if wide is not None and len(wide) == len(want) else want
        ones = zip(got, want, wide, strict=True)
        scale = _largest(call) if free.overflow else None
        problem = next((text for g, w, e in ones if (text := _element(g, w, e, scale, free, device))), "")
    return problem or ("" if free.zeros or free.values else _zeros(got, want, call))


def _largest(call: Call) -> float:
    """The largest finite number among the inputs."""
    floats = [x.abs().double().flatten() for x in call.inputs if x.is_floating_point() or x.is_complex()]
    return max((float(x[x.isfinite()].max()) for x in floats if bool(x.isfinite().any())), default=0.0)


def _element(got: Any, want: Any, exact: Any, scale: float | None, free: Free, device: str) -> str:
    """The first element that is close neither to eager's nor to eager's in float64.

    scale: of the inputs, where overflow is free: finite elements are close as sums of such numbers are.
    free: where errors of small elements are free, they are those of the result's largest element; so are elements that
        are NaN in eager.
    device: on a GPU, where values of 16 bits stay in float32 between operators, an error of 2 times eager's is as good.
    """
    if not isinstance(want, torch.Tensor):
        got = got.item() if hasattr(got, "item") else got
        return "" if got == want or (got != got and want != want) else f"{got!r} instead of {want!r}"
    got = as_tensor(got)
    if free.dtypes and got.is_floating_point() and want.is_floating_point():
        want = want.to(got.dtype)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    exact = exact if isinstance(exact, torch.Tensor) and exact.shape == want.shape else want
    rounded = exact.cpu().to(want.dtype)
    good = _close(got, want) | _close(got, rounded)
    if device == "cuda" and want.dtype in (torch.float16, torch.bfloat16):
        good |= _as_exact(got, want, exact.cpu())
    if free.nan:
        good |= want.isnan()
    if scale is not None:
        good |= ~(torch.isfinite(got) & torch.isfinite(want) & torch.isfinite(rounded))
        good |= (got - want).abs().double() <= scale * tolerance(want.dtype).get("rtol", 1e-2)
    if free.small:
        good |= (got - want).abs() <= _ROUNDINGS * torch.finfo(want.dtype).eps * want.abs().max()
    if bool(good.all()):
        return ""
    place = (~good).nonzero()[0].tolist()
    at = tuple(place)
    return f"{got[at].item()!r} instead of {want[at].item()!r} at {place}"


def _as_exact(got: torch.Tensor, want: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Elements whose error against float64 is at most twice the largest one of eager's."""
    ours, eagers = ((x.double() - exact).abs() for x in (got, want))
    finite = eagers.isfinite()
    return ours <= (2 * float(eagers[finite].max()) if bool(finite.any()) else 0.0)


_ROUNDINGS = 16  # in units of the largest element: what a Fourier transform of thousands of elements comes to


def _close(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    if want.is_complex():
        a, b = torch.view_as_real(got.resolve_conj()), torch.view_as_real(want.resolve_conj())
        return _close(a, b).all(-1)
    rtol, atol = _tolerances(want.dtype)
    return torch.isclose(got, want, equal_nan=True, rtol=rtol, atol=atol)


def _tolerances(dtype: torch.dtype) -> tuple[float, float]:
    """What `disagreement` takes, relative and absolute: also where those are torch's defaults."""
    own = tolerance(dtype)
    return (own["rtol"], own["atol"]) if own else default_tolerances(dtype)


def _zeros(got: Sequence[Any], want: Sequence[Any], call: Call) -> str:
    """The first zero of the other sign; one that eager has in float64 is as good."""
    wide: list[Any] | None = None
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if not isinstance(w, torch.Tensor) or not (w.is_floating_point() or w.is_complex()):
            continue
        other = _other_zeros(g, w)
        if bool(other.any()):
            wide = in_float64(call) if wide is None else wide
            if wide and len(wide) == len(want) and isinstance(wide[k], torch.Tensor) and wide[k].shape == w.shape:
                other &= _other_zeros(g, wide[k].cpu().to(w.dtype))
        if bool(other.any()):
            place = other.nonzero()[0].tolist()
            return f"a zero of the other sign than {_real(w)[tuple(place)].item()!r} at {place}"
    return ""


def _other_zeros(got: Any, want: torch.Tensor) -> torch.Tensor:
    g, w = _real(as_tensor(got)), _real(want)
    return (g == 0) & (w == 0) & (torch.signbit(g) != torch.signbit(w)) if g.shape == w.shape else torch.zeros(1) > 1


def _real(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
