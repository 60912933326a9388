"""Architectures of transformers under `torch.compile(model, backend="mycc")`: forward and a training step

    python bench/backend_sweep.py                   all of them: bench/backend_sweep.json and docs/backend-sweep.md
    python bench/backend_sweep.py --jobs 16         so many at a time, each with one thread
    python bench/backend_sweep.py --only bert,t5    some by name
    python bench/backend_sweep.py --status wrong    again what was wrong; --status missing: what has no result yet
    python bench/backend_sweep.py --only-page       the page again, from the results alone
    python bench/backend_sweep.py --status missing --seconds 550        goes on where it stopped, and stops in time

Each runs in a process of its own that has a time limit; those that took longest before come first. Results and the
gradients of all parameters are compared with the model in float64: right is at most twice as far off as eager torch,
plus 1e-7, of the largest number; close cases are compared over eight draws of weights together. Operators that mycc
leaves to eager torch are counted, and graph breaks, which are TorchDynamo's own. The exit code is 1 when one is wrong
or crashes.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # weights are random: nothing is to be fetched

import numpy as np
import sweep_models
import torch
from architectures.base import Row, Wrapped
from mycc.compiler.backend.backend import backend
from mycc.compiler.backend.graph_compiler import GraphCompiler
from mycc.compiler.backend.parts import operators_of
from mycc.compiler.machine.local_cpu import available_cores
from sweep_files import Task
from sweep_processes import first_line, in_processes
from sweep_reference import in_float64, wide_inputs, wide_model
from torch import fx

HERE = Path(__file__).resolve().parent
EXPORTED = HERE / "sweep.json"  # how long each architecture took there
RESULTS, PAGE = HERE / "backend_sweep.json", HERE.parent / "docs" / "backend-sweep.md"
CASES = ("forward", "training")
STATUSES = ("right", "torch", "wrong", "crash")
FACTOR, FLOOR = 2.0, 1e-7
#: what exceeds the bound, by no more than this factor, is compared over so many draws of weights
HOPELESS, DRAWS = 16.0, 8
OTHER = 1e-3  # two computations in float64 that differ by more are not the same
#: probabilities, of modules or of configurations
RANDOM = (
    "p", "dropout", "attention_dropout", "activation_dropout", "hidden_dropout", "layerdrop", "encoder_layerdrop",
    "decoder_layerdrop", "mask_time_prob", "mask_feature_prob",
)  # fmt: skip
SHARE = 0.95  # of a model's operators that run in mycc's kernels
Found = tuple[list[torch.Tensor], list[torch.Tensor | None]]


@dataclass(frozen=True)
class Result:
    """What became of a model in one case; `torch`: torch has no such step, or TorchDynamo captures another.

    error, eager: the largest differences from float64. breaks: of graphs, by TorchDynamo.
    operators, fallbacks: operators of all graphs, and those of them that eager torch ran.
    """

    name: str
    case: str
    status: str
    reason: str = ""
    error: float = 0.0
    eager: float = 0.0
    graphs: int = 0
    breaks: int = 0
    operators: int = 0
    fallbacks: int = 0
    seconds: float = 0.0
    eager_operators: tuple[str, ...] = field(default=())


def model_of(row: Row, seed: int = 0) -> Wrapped:
    """The architecture with random weights, without dropout, layers left out and parts of the input masked by chance:
    its random numbers are another matter."""
    torch.manual_seed(seed)
    model = row.module()
    for part in model.modules():
        config = getattr(part, "config", None)
        for holder in (part, config) if config is not None else (part,):
            for name in RANDOM:
                if isinstance(getattr(holder, name, None), float):
                    setattr(holder, name, 0.0)
        if getattr(config, "apply_spec_augment", False):
            config.apply_spec_augment = False
    return model


def step(model: torch.nn.Module, call: Any, inputs: Sequence[torch.Tensor], train: bool) -> Found:
    """Results of a call, and in training the gradients of all parameters for a fixed cotangent."""
    torch.manual_seed(7)
    np.random.seed(7)
    with torch.set_grad_enabled(train):
        model.zero_grad()
        results = [y for y in call(*inputs) if isinstance(y, torch.Tensor)]
        if not train:
            return results, []
        taken = [y for y in results if y.requires_grad]
        sum((y * _cotangent(y)).sum() for y in taken).backward()  # type: ignore[union-attr]
        return [y.detach() for y in results], [p.grad for p in model.parameters()]


def _cotangent(y: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)


def error(found: Found, wanted: Found) -> float:
    """The largest difference, by the largest number of each tensor where that is above 1.

    Of a parameter that no result depends on eager torch has no gradient, and AOTAutograd, for every backend, zeros.
    """
    worst = 0.0
    for got, own in zip((*found[0], *found[1]), (*wanted[0], *wanted[1]), strict=True):
        if got is None or own is None:
            given = own if got is None else got
            worst = max(worst, 0.0 if given is None or not given.any() else float("inf"))
            continue
        if not own.numel():
            continue
        if not own.is_floating_point():
            worst = max(worst, 0.0 if torch.equal(got, own) else float("inf"))
            continue
        scale = max(1.0, float(own.abs().nan_to_num(0.0).max()))
        same = torch.equal(got.isnan(), own.isnan())
        off = float((got.double() - own.double()).abs().nan_to_num(0.0).max()) / scale
        worst = max(worst, off if same else float("inf"))
    return worst


def measure(row: Row, case: str, compilers_at_once: int | None = None) -> Result:
    """Runs one architecture. Raises what is no answer: a crash."""
    train = case == "training"
    model = model_of(row).train(train)
    inputs = row.tensors(2)
    wide = wide_model(model)
    try:
        plain = copy.deepcopy(model)
        eager = step(plain, plain, inputs, train)
        wanted = _reference(lambda: step(wide, wide, wide_inputs(inputs), train), eager) or eager
    except Exception as problem:
        return Result(row.name, case, "torch", f"{type(problem).__name__}: {first_line(str(problem))}")
    compilers: list[tuple[fx.GraphModule, GraphCompiler]] = []

    options = {"build.flags": "-O1", "jobs": compilers_at_once}

    def compile_graph(module: fx.GraphModule, examples: Sequence[Any]) -> Any:
        return backend(module, examples, options=options, report=lambda _, gm, own: compilers.append((gm, own)))

    torch._dynamo.utils.counters.clear()
    try:
        run = _captured(model, compile_graph)
        found = run(model, inputs, train)
    except Exception:
        if why := _refusal(model, inputs, train):
            return Result(row.name, case, "torch", why)
        raise
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    off, base = error(found, wanted), error(eager, wanted)
    if off > FACTOR * base + FLOOR and (why := _other(model, inputs, train, found, wanted, base)):
        return Result(row.name, case, "torch", why)
    if FACTOR * base + FLOOR < off <= HOPELESS * (base + FLOOR):
        off, base = _pooled(row, inputs, train, run)
    status = "right" if off <= FACTOR * base + FLOOR else "wrong"
    fallbacks = [f for _, compiler in compilers for f in compiler.fallbacks]
    return Result(
        row.name, case, status, "" if status == "right" else f"error {off:.1e}, eager {base:.1e}", off, base,
        len(compilers), breaks, sum(len(operators_of(gm)) for gm, _ in compilers),
        len(fallbacks), eager_operators=tuple(dict.fromkeys(f.operator for f in fallbacks)),
    )  # fmt: skip


def _reference(run: Callable[[], Found], near: Found) -> Found | None:
    return in_float64(run, lambda wide: math.isfinite(error(near, wide)))


def captured(model: torch.nn.Module, inputs: Sequence[torch.Tensor], train: bool, compiler: Any) -> Found:
    """A step of a copy of a model, as TorchDynamo captures it, with a backend."""
    return _captured(model, compiler)(model, inputs, train)


def _captured(like: torch.nn.Module, compiler: Any) -> Callable[..., Found]:
    """Steps of models of one form, as TorchDynamo captures it: compiled once."""
    own = copy.deepcopy(like)
    torch._dynamo.reset()
    compiled = torch.compile(own, backend=compiler)

    def run(model: torch.nn.Module, inputs: Sequence[torch.Tensor], train: bool) -> Found:
        own.load_state_dict(model.state_dict())
        return step(own, compiled, inputs, train)

    return run


def _pooled(row: Row, inputs: Sequence[torch.Tensor], train: bool, run: Callable[..., Found]) -> tuple[float, float]:
    """The errors over several draws of weights, of the package and of eager torch: the root of the mean square. Where
    a result is near a pole, the errors of one draw say how its roundings fell, and no more."""
    squares = [0.0, 0.0]
    for seed in range(1, DRAWS + 1):
        model = model_of(row, seed).train(train)
        wide = wide_model(model)
        found, eager = run(model, inputs, train), step(model, model, inputs, train)
        wanted = _reference(lambda wide=wide: step(wide, wide, wide_inputs(inputs), train), eager)  # type: ignore[misc]
        if wanted is None:
            return math.inf, 0.0
        squares = [total + error(y, wanted) ** 2 for total, y in zip(squares, (found, eager), strict=True)]
    return math.sqrt(squares[0] / DRAWS), math.sqrt(squares[1] / DRAWS)


def _refusal(model: torch.nn.Module, inputs: Sequence[torch.Tensor], train: bool) -> str:
    """Why TorchDynamo and AOTAutograd cannot capture a step; empty where they can."""
    try:
        captured(model, inputs, train, "aot_eager")
    except Exception as problem:
        return f"not captured: {type(problem).__name__}: {first_line(str(problem))}"
    return ""


def _other(
    model: torch.nn.Module, inputs: Sequence[torch.Tensor], train: bool, found: Found, wanted: Found, base: float
) -> str:
    """Says that what TorchDynamo captures is another computation, when eager torch runs its graphs with other results
    than the model's, in float64 as well, and the results found are right by these; else empty."""
    wide = wide_model(model)
    reference = _reference(lambda: captured(wide, wide_inputs(inputs), train, "eager"), found)
    if reference is None:
        return ""
    apart = error(reference, wanted)
    if apart <= OTHER or error(found, reference) > FACTOR * base + FLOOR:
        return ""
    return f"TorchDynamo's graphs, run by eager torch in float64, are off by {apart:.1e}"


# files ---------------------------------------------------------------------------------------------------------------
def read(path: Path) -> dict[Task, Result]:
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())["results"]
    return {(r["name"], r["case"]): Result(**{**r, "eager_operators": tuple(r["eager_operators"])}) for r in rows}


def versions(path: Path) -> dict[str, str]:
    """Of the libraries, now and of the results that are in the file: 5.17.0/5.23.0."""
    before = json.loads(path.read_text()).get("versions", {}) if path.exists() else {}
    now = {name: version(name) for name in ("torch", "transformers")}
    kept = {name: [v for v in before.get(name, "").split("/") if v and v != now[name]] for name in now}
    return {name: "/".join([*kept[name], now[name]]) for name in now}


def write(path: Path, found: dict[Task, Result], made_with: dict[str, str]) -> None:
    tasks = [(row.name, case) for row in sweep_models.ROWS for case in CASES]
    lines = ",\n".join(json.dumps(asdict(found[t])) for t in tasks if t in found)
    whole = path.with_suffix(".part")
    whole.write_text(f'{{"versions": {json.dumps(made_with)}, "results": [\n{lines}\n]}}\n')
    whole.replace(path)


def longest_first(tasks: Sequence[Task], found: dict[Task, Result]) -> list[Task]:
    """Tasks in the order of the seconds that they took before; of new ones, those that an export of the model took."""
    exported = {}
    if EXPORTED.exists():
        exported = {r["name"]: r["seconds"] for r in json.loads(EXPORTED.read_text())["results"]}

    def seconds(task: Task) -> float:
        known = exported.get(task[0], float("inf")) * (2 if task[1] == "training" else 1)
        return found[task].seconds if task in found else known

    return sorted(tasks, key=seconds, reverse=True)


def summary(found: dict[Task, Result]) -> str:
    """How many architectures are right in all cases, and run in mycc's kernels."""
    both = [[found.get((row.name, case)) for case in CASES] for row in sweep_models.ROWS]
    ran = [[r for r in cases if r is not None] for cases in both if None not in cases]
    right = [cases for cases in ran if all(r.status == "right" for r in cases)]
    whole = [cases for cases in right if not any(r.fallbacks for r in cases)]
    most = [cases for cases in right if all(r.fallbacks <= (1 - SHARE) * r.operators for r in cases)]
    return (
        f"Of {len(ran)} architectures {len(right)} are right in both cases. {len(whole)} of these leave no operator to "
        f"eager torch, and {len(most)} at most {1 - SHARE:.0%} of them."
    )


def page(found: dict[Task, Result], made_with: dict[str, str]) -> str:
    lines = [
        "# Architectures under torch.compile",
        "",
        'transformers\' architectures under `torch.compile(model, backend="mycc")`, with random weights. '
        "A forward pass runs in evaluation mode, a training step without dropout. Results and gradients are compared "
        "with the model in float64: right is at most twice as far off as eager torch, plus 1e-7; close cases over "
        "eight draws of weights together. Made by "
        "`bench/backend_sweep.py` with " + ", ".join(f"{k} {v}" for k, v in made_with.items()) + "; do not edit.",
        "",
        summary(found),
        "",
        "| case | " + " | ".join(STATUSES) + " | operators | of them in eager torch |",
        "|---|" + "---|" * (len(STATUSES) + 2),
    ]
    for case in CASES:
        own = [r for (_, c), r in found.items() if c == case]
        count = Counter(r.status for r in own)
        operators, fallbacks = sum(r.operators for r in own), sum(r.fallbacks for r in own)
        lines.append(f"| {case} | " + " | ".join(str(count[s]) for s in STATUSES) + f" | {operators} | {fallbacks} |")
    lines += [
        "",
        "`torch`: eager torch itself has no such step, or TorchDynamo does not capture it as it is: eager torch runs "
        "its graphs with other results, or not at all. Breaks are TorchDynamo's, as for every backend.",
        "",
        "| architecture | case | status | graphs | breaks | operators | in eager torch |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, case), r in found.items():
        status = r.status if r.status == "right" else f"{r.status}: {r.reason}".replace("|", "\\|")
        eager = f"{r.fallbacks}: {', '.join(r.eager_operators)}" if r.fallbacks else ""
        lines.append(f"| {name} | {case} | {status} | {r.graphs} | {r.breaks} | {r.operators} | {eager} |")
    return "\n".join(lines) + "\n"


def _timed(compilers_at_once: int, task: Task) -> Result:
    start = time.monotonic()
    result = measure(sweep_models.BY_NAME[task[0]], task[1], compilers_at_once)
    return replace(result, seconds=round(time.monotonic() - start, 1))


def _crashed(task: Task, reason: str, seconds: float) -> Result:
    return Result(*task, "crash", reason, seconds=seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--status", default="", help="only what has one of these statuses; missing: no result yet")
    parser.add_argument("--case", default="", choices=("", *CASES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one architecture in one case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the whole run, which then stops")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--only-page", action="store_true")
    options, begin = parser.parse_args(), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the children end too
    found, made_with = read(options.json), versions(options.json)
    names = options.only.split(",") if options.only else [row.name for row in sweep_models.ROWS]
    if unknown := [name for name in names if name not in sweep_models.BY_NAME]:
        raise SystemExit(f"no architecture {', '.join(unknown)}")
    wanted = options.status.split(",") if options.status else None
    tasks = [(name, case) for name in names for case in CASES if options.case in ("", case)]
    tasks = [t for t in tasks if wanted is None or (found[t].status if t in found else "missing") in wanted]
    tasks = [] if options.only_page else longest_first(tasks, found)
    bad, end = False, begin + options.seconds
    compilers = max(1, 2 * available_cores() // options.jobs)
    for result in in_processes(tasks, partial(_timed, compilers), _crashed, options.limit, options.jobs, end):
        print(
            f"{result.name} {result.case}: {result.status} {result.reason} {' '.join(result.eager_operators)}",
            flush=True,
        )
        found[result.name, result.case] = result
        bad |= result.status in ("wrong", "crash")
        write(options.json, found, made_with)
    options.page.write_text(page(found, made_with))
    print(summary(found))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
