"""Architectures of transformers, small, through the compiler: are they right?

    python bench/sweep.py                      all of sweep_models.py, into bench/sweep.json and docs/sweep.md
    python bench/sweep.py --only bert,t5       some by name
    python bench/sweep.py --status wrong       again what was wrong
    python bench/sweep.py --dtype bf16         in another type; printed only
    python bench/sweep.py --quick              a first look

Each architecture is exported, compiled and compared with itself in float64, with fixed sizes and with a dynamic batch
(at batches of 2, 1 and 3), in a process of its own that has a time limit. The exit code is 1 when one is wrong.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import mycc
import torch
import transformers
from mycc.compiler.verify.compare import error
from mycc.runtime.errors import CompileError
from sweep_models import BY_NAME, ROWS, Row
from torch.export import Dim
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("sweep.json")
PAGE = ROOT / "docs" / "sweep.md"
CASES = ("static", "dynamic")
BATCHES = {"static": (2,), "dynamic": (2, 1, 3)}
#: what a result may be off by, beside what eager torch is off by
FACTOR, FLOOR = 4.0, 1e-5
#: "torch": torch.export itself gives no program
STATUSES = ("right", "refused", "torch", "wrong", "crash")


@dataclass(frozen=True)
class Result:
    """What became of one architecture in one case; `error` and `eager` are the largest ones of all outputs."""

    name: str
    case: str
    status: str
    reason: str = ""
    error: float = 0.0
    eager: float = 0.0
    seconds: float = 0.0


class Wrapped(torch.nn.Module):
    """A model of transformers as a function of tensors that returns tensors."""

    def __init__(self, network: torch.nn.Module, row: Row) -> None:
        super().__init__()
        self.network = network
        self.names, self.call = tuple(row.inputs), dict(row.call)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        output = self.network(**dict(zip(self.names, tensors, strict=True)), **self.call)
        fields = output.to_tuple() if hasattr(output, "to_tuple") else output
        return tuple(leaf for leaf in pytree.tree_leaves(fields) if isinstance(leaf, torch.Tensor))


def model_of(row: Row) -> Wrapped:
    """The architecture with random weights; norms of batches have the statistics of random inputs."""
    torch.manual_seed(0)
    config = getattr(transformers, row.config)(**row.options)
    for part in (config, *(v for v in vars(config).values() if isinstance(v, transformers.PretrainedConfig))):
        part.use_cache = False
    model = Wrapped(getattr(transformers, row.model)(config).eval(), row)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if norms:
        for norm in norms:
            norm.train()
            norm.momentum = 1.0
        with torch.no_grad():
            model(*inputs_of(row, 4))
    return model.eval()


def inputs_of(row: Row, batch: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(batch)
    return tuple(make(batch) for make in row.inputs.values())


def shapes_of(row: Row, case: str) -> Any:
    if case == "static":
        return None
    batch = Dim("batch", min=1, max=64)
    return (tuple({0: batch} for _ in row.inputs),)


def measure(row: Row, case: str, dtype: str | None = None, quick: bool = False) -> Result:
    """Compiles and compares one architecture. Raises what is no answer: a crash."""
    how: dict[str, Any] = {"dtype": dtype, "dynamic_shapes": shapes_of(row, case)}
    how |= {"verify": False, "options": {"build.flags": "-O1"}} if quick else {}
    start = time.monotonic()
    model = model_of(row)
    example = inputs_of(row, 2)
    with tempfile.TemporaryDirectory(prefix="sweep") as folder:
        try:
            path = mycc.compile(model, example, out=f"{folder}/model.pkg", **how)
        except CompileError as refusal:
            return _refused(row, case, model, example, refusal, time.monotonic() - start)
        package = mycc.load(path)
        worst, problem = (0.0, 0.0), ""
        for batch in BATCHES[case]:
            worst, problem = _compared(row, model, package, batch, worst, problem, dtype)
    status = "wrong" if problem else "right"
    return Result(row.name, case, status, problem, *worst, seconds=round(time.monotonic() - start, 1))


def _refused(row: Row, case: str, model: Wrapped, example: Any, refusal: CompileError, seconds: float) -> Result:
    text = reason(refusal)
    status = "wrong" if "not as accurate" in text or "generated" in text else "refused"
    if status == "refused" and (own := _own_failure(model, example, shapes_of(row, case))):
        status, text = "torch", own
    return Result(row.name, case, status, text, seconds=round(seconds, 1))


def _own_failure(model: Wrapped, example: Any, shapes: Any) -> str:
    """What torch.export alone says to the model; empty when it gives a program."""
    try:
        with torch.no_grad():
            torch.export.export(model, example, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        return f"{type(error).__name__}: {_first_line(str(error))}"
    return ""


def _compared(
    row: Row, model: Wrapped, package: Any, batch: int, worst: tuple[float, float], problem: str, dtype: str | None
) -> tuple[tuple[float, float], str]:
    """The larger errors, and what is wrong at this batch, if nothing was before."""
    given = inputs_of(row, batch)
    narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype or "", torch.float32)
    taken = [x.to(narrow) if x.is_floating_point() else x for x in given]
    with torch.no_grad():
        eager = (copy.deepcopy(model).to(narrow) if dtype else model)(*taken)
        wanted = _in_float64(copy.deepcopy(model).to(narrow), taken) or eager
    found = package(*taken)
    found = [torch.as_tensor(x) for x in (found if isinstance(found, (tuple, list)) else (found,))]
    if len(found) != len(eager):
        return worst, problem or f"{len(found)} results instead of {len(eager)}"
    for i, (f, e, w) in enumerate(zip(found, eager, wanted, strict=True)):
        off, own = error(f, w), error(e, w)
        worst = max(worst[0], off), max(worst[1], own)
        if (f.dtype, f.shape) != (e.dtype, e.shape) or not off <= FACTOR * own + FLOOR:
            problem = problem or f"result {i} at a batch of {batch}: error {off:.1e}, eager {own:.1e}"
    return worst, problem


def _in_float64(model: Wrapped, given: Sequence[torch.Tensor]) -> Any:
    """The model's own results in float64, or None where its code insists on float32."""
    try:
        return copy.deepcopy(model).double()(*(x.double() if x.is_floating_point() else x for x in given))
    except RuntimeError:
        return None


def reason(refusal: CompileError) -> str:
    """The refusal in a line: what, and of several details the first."""
    text = _first_line(str(refusal))
    details = [re.sub(r"\s+", " ", d).strip() for d in refusal.details]
    return f"{text}: {'; '.join(details[:3])}"[:400] if details else text


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")[:300]


# processes -----------------------------------------------------------------------------------------------------------
def _child(row: Row, case: str, dtype: str | None, quick: bool, answers: Connection) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        answers.send(measure(row, case, dtype, quick))
    except Exception as problem:
        answers.send(Result(row.name, case, "crash", f"{type(problem).__name__}: {_first_line(str(problem))}"))
        raise


def in_process(row: Row, case: str, dtype: str | None, quick: bool, limit: float) -> Result:
    """`measure` in a process of its own: one that dies or takes too long is a crash."""
    answers, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(row, case, dtype, quick, theirs))
    child.start()
    theirs.close()
    try:
        if not answers.poll(limit):
            return Result(row.name, case, "crash", f"not done after {limit:.0f} s", seconds=limit)
        return answers.recv()  # type: ignore[no-any-return]
    except EOFError:
        child.join()
        return Result(row.name, case, "crash", f"the process died with code {child.exitcode}")
    finally:
        child.kill()
        child.join()


# results -------------------------------------------------------------------------------------------------------------
def read() -> dict[tuple[str, str], Result]:
    rows = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    return {(r["name"], r["case"]): Result(**r) for r in rows}


def write(results: dict[tuple[str, str], Result]) -> None:
    """A line per result, in the order of the table, and the page."""
    ordered = [r for row in ROWS for case in CASES if (r := results.get((row.name, case))) is not None]
    lines = ",\n".join(json.dumps(asdict(r)) for r in ordered)
    RESULTS.write_text(f'{{"transformers": "{transformers.__version__}", "results": [\n{lines}\n]}}\n')
    PAGE.write_text(page(ordered))


def page(results: Sequence[Result]) -> str:
    """docs/sweep.md as text."""
    by_name: dict[str, dict[str, Result]] = {}
    for r in results:
        by_name.setdefault(r.name, {})[r.case] = r
    lines = [
        "# Architectures",
        "",
        f"{len(by_name)} architectures of transformers {transformers.__version__} in small configurations with random "
        "weights (`bench/sweep_models.py`), each exported, compiled for the CPU and compared with itself in float64: "
        "with fixed sizes, and with a dynamic batch at batches of 2, 1 and 3. Made by `python bench/sweep.py`; do not "
        "edit.",
        "",
        f"A result is right when its error, relative to float64, is at most {FACTOR:.0f} times eager torch's plus "
        f"{FLOOR:g}, at every output. *torch* means that torch.export "
        "itself gives no program.",
        "",
        "| sizes | " + " | ".join(STATUSES) + " |",
        "|---|" + "---|" * len(STATUSES),
    ]
    for case in CASES:
        count = Counter(r.status for r in results if r.case == case)
        lines.append(f"| {case} | " + " | ".join(str(count[s]) for s in STATUSES) + " |")
    lines += [
        "",
        "| architecture | kind | static | error | dynamic batch | error | eager |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, cases in by_name.items():
        cells = [name, BY_NAME[name].kind]
        for case in CASES:
            r = cases.get(case)
            cells += [r.status if r else "", f"{r.error:.1e}" if r and r.status == "right" else ""]
        cells.append(max((f"{r.eager:.1e}" for r in cases.values() if r.status == "right"), default="", key=_number))
        lines.append("| " + " | ".join(cells) + " |")
    other = [r for r in results if r.status != "right"]
    if other:
        lines += [
            "",
            "## Why the others are not",
            "",
            "| architecture | sizes | status | reason |",
            "|---|---|---|---|",
        ]
        lines += [f"| {r.name} | {r.case} | {r.status} | {r.reason.replace('|', chr(92) + '|')} |" for r in other]
    return "\n".join(lines) + "\n"


def _number(text: str) -> float:
    return float(text) if text else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description="architectures of transformers through the compiler")
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--status", default="", help="only what has one of these statuses in sweep.json, or none")
    parser.add_argument("--case", default="", choices=("", *CASES))
    parser.add_argument("--dtype", default=None, help="bf16 or f16; the results are printed only")
    parser.add_argument("--quick", action="store_true", help="little optimised, and without the package's verification")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one architecture in one case")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    results = read()
    if options.page:
        write(results)
        return 0
    names = options.only.split(",") if options.only else [row.name for row in ROWS]
    wanted = options.status.split(",") if options.status else None
    ran = []
    for name in names:
        for case in (options.case,) if options.case else CASES:
            known = results.get((name, case))
            if wanted is not None and known is not None and known.status not in wanted:
                continue
            result = in_process(BY_NAME[name], case, options.dtype, options.quick, options.limit)
            ran.append(result)
            print(f"{name:20} {case:8} {result.status:8} {result.seconds:6.1f} s  {result.reason}", flush=True)
            if options.dtype is None:
                results[name, case] = result
                write(results)
    return 1 if any(r.status in ("wrong", "crash") for r in ran) else 0


if __name__ == "__main__":
    sys.exit(main())
