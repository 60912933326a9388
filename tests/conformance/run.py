"""Runs op_db and module_db through the compiler and writes what became of every entry.

    python -m tests.conformance.run                                     all of it, into tests/conformance/results.json
    python -m tests.conformance.run --dtype float32 --status refused    again what was refused
    python -m tests.conformance.run --dtype float32 --match "^linalg"   entries by name
    python -m tests.conformance.run --family cuda --dtype float32       GPU kernels, through Triton's interpreter
    python -m tests.conformance.run --family cuda --device --out FILE   GPU kernels, on this machine's GPU
    python -m tests.conformance.run --kind edges --dtype bfloat16       reference inputs, special values, variants
    python -m tests.conformance.run --kind modules                      torch's modules, in both modes
    python -m tests.conformance.run --kind gradients --dtype float32    gradients, as AOTAutograd traces them

Rows of entries that did not run stay as they are; those of the family cuda say what they are `by`: the interpreter or a
device. The exit code is 1 when an entry that ran is wrong or crashes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import compact

RESULTS = Path(__file__).parent / "results.json"
#: of the family cuda: Triton's interpreter runs the kernels
RESULTS_CUDA = Path(__file__).parent / "results_cuda.json"
#: by kind and family
DEFAULTS = {
    "samples": {"cpu": RESULTS, "cuda": RESULTS_CUDA},
    "edges": {"cpu": compact.EDGES, "cuda": compact.EDGES_CUDA},
    "modules": {"cpu": compact.MODULES, "cuda": compact.MODULES_CUDA},
    "gradients": {"cpu": compact.GRADIENTS, "cuda": compact.GRADIENTS_CUDA},
}
ROOT = Path(__file__).parents[2]
BATCH = 30  # entries of a package, or of a process of the interpreter
SAMPLES = 6  # of each entry
SILENCE = 900  # seconds that a worker may say nothing: it says what it begins, the longest of which is a package
Row = dict[str, Any]


@dataclass
class Batches:
    """The work that is left, shared by the workers, and the rows that are done."""

    left: deque[tuple[str, list[str]]]
    cache: Path
    samples: int = SAMPLES
    family: str = "cpu"
    device: bool = False
    kind: str = "samples"
    silence: float = SILENCE
    end: float = math.inf  # when no further batch begins, on the monotonic clock
    done: Callable[[], None] = lambda: None  # told after every batch
    rows: list[Row] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    serial: int = 0

    @property
    def by(self) -> Row:
        """Of the family cuda: what ran the kernels."""
        return {} if self.family == "cpu" else {"by": "device" if self.device else "interpreter"}

    def take(self) -> dict[str, Any] | None:
        with self.lock:
            if not self.left or time.monotonic() > self.end:
                return None
            self.serial += 1
            dtype, names = self.left.popleft()
            serial = self.serial
        return {
            "dtype": dtype, "entries": names, "serial": serial, "samples": self.samples, "family": self.family,
            "device": self.device, "kind": self.kind,
        }  # fmt: skip

    def put_back(self, dtype: str, names: Sequence[str]) -> None:
        with self.lock:
            if names:
                self.left.append((dtype, list(names)))

    def add(self, row: Row) -> None:
        with self.lock:
            self.rows.append(row)


def run_batches(batches: Batches, jobs: int, tell: Callable[[str], None]) -> None:
    threads = [threading.Thread(target=_serve, args=(batches, tell)) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve(batches: Batches, tell: Callable[[str], None]) -> None:
    """Feeds worker processes until no work is left; one that dies or hangs is replaced."""
    with tempfile.TemporaryDirectory(prefix="conformance") as folder:
        worker: subprocess.Popen[str] | None = None
        while (batch := batches.take()) is not None:
            worker = worker if worker is not None and worker.poll() is None else _start(not batches.device)
            message = {**batch, "folder": f"{folder}/{batch['serial']}", "cache": str(batches.cache)}
            if not _run(worker, message, batches, tell):
                _stop(worker)
                worker = None
        if worker is not None and worker.stdin is not None:
            worker.stdin.close()
            _ended(worker)


def _start(limited: bool) -> subprocess.Popen[str]:
    """A worker in a session of its own, so that the compilers that it started end with it; `limited` in its memory."""
    command = [sys.executable, "-m", "tests.conformance.worker", str(os.getpid()), *(["--limit-memory"] * limited)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MYCC_THREADS": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)


def _ended(worker: subprocess.Popen[str]) -> int:
    """The code of a worker that is at its end; one that takes longer to leave is stopped."""
    try:
        return worker.wait(30)
    except subprocess.TimeoutExpired:
        _stop(worker)
        return worker.wait()


def _stop(worker: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def _answers(worker: subprocess.Popen[str], batches: Batches) -> Iterator[dict[str, Any]]:
    """What a worker says, until it dies; one that says nothing for too long is ended."""
    assert worker.stdout is not None
    while True:
        watch = threading.Timer(batches.silence, _stop, (worker,))
        watch.start()
        line = worker.stdout.readline()
        watch.cancel()
        if not line:
            return
        yield json.loads(line)


def _run(worker: subprocess.Popen[str], batch: dict[str, Any], batches: Batches, tell: Callable[[str], None]) -> bool:
    """One batch; False when the worker died in it: what it was at is a crash, the others are tried again."""
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(batch) + "\n")
        worker.stdin.flush()
    except BrokenPipeError:  # it died between two batches
        batches.put_back(batch["dtype"], batch["entries"])
        return False
    at, left, start = "", list(batch["entries"]), time.monotonic()
    for message in _answers(worker, batches):
        if "at" in message:
            at, start = message["at"], time.monotonic()
        elif "entry" in message:
            left = [name for name in left if name != message["entry"]]
            batches.add({**message, **batches.by})
        else:
            tell(f"{batch['dtype']} {batch['entries'][0]} .. {batch['entries'][-1]}: {message}")
            with batches.lock:
                batches.done()
            return True
    hung = time.monotonic() - start >= batches.silence
    what = f"takes longer than {batches.silence} s" if hung else f"the process died with code {_ended(worker)}"
    tell(f"{batch['dtype']} {at or 'a package of several entries'}: {what}")
    if not at and len(left) == 1:
        at = left[0]
    if at:
        left.remove(at)
        own = {"samples": {}, "gradients": {"source": "gradients"}}
        source = own.get(batches.kind, {"source": "special"})
        batches.add({**_EMPTY, "entry": at, "dtype": batch["dtype"], "reason": what, **source, **batches.by})
        batches.put_back(batch["dtype"], left)
        return False
    middle = len(left) // 2
    batches.put_back(batch["dtype"], left[:middle])
    batches.put_back(batch["dtype"], left[middle:])
    return False


#: the row of an entry whose process died
_EMPTY: Row = {"entry": "", "dtype": "", "status": "crash", "samples": 0, "right": 0}


def read(path: Path) -> list[Row]:
    """The rows; each says with which version of torch it was made."""
    whole = json.loads(path.read_text()) if path.exists() else {"torch": "", "results": []}
    return [{"torch": whole["torch"], **row} for row in whole["results"]]


def write(path: Path, rows: Sequence[Row], order: Sequence[str]) -> None:
    """One row per line, in op_db's order, so that a diff shows what changed."""
    import torch

    place = {name: i for i, name in enumerate(order)}
    ordered = sorted(rows, key=lambda r: (r["dtype"], place.get(r["entry"], len(place))))
    most = Counter(row.get("torch", torch.__version__) for row in rows).most_common(1)[0][0] if rows else ""
    of_most = {"torch": most}
    lines = ",\n".join(
        json.dumps({k: v for k, v in {"torch": torch.__version__, **row}.items() if of_most.get(k) != v})
        for row in ordered
    )
    whole = path.with_suffix(".part")  # what interrupts this leaves the old file
    whole.write_text(f'{{"torch": "{most}", "results": [\n{lines}\n]}}\n')
    whole.replace(path)


def summary(rows: Sequence[Row]) -> str:
    """Counts by dtype and status."""
    lines = []
    for dtype in dict.fromkeys(r["dtype"] for r in rows):
        count = Counter(r["status"] for r in rows if r["dtype"] == dtype)
        found = ", ".join(
            f"{count[s]} {s}" for s in ("right", "refused", "wrong", "crash", "untraced", "none") if count[s]
        )
        lines.append(f"{dtype}: {found} of {sum(count.values())}")
    return "\n".join(lines)


def main() -> int:
    options = _options()
    batches = Batches(
        _left(options), options.cache, options.samples, options.family, options.device, options.kind, options.silence
    )
    batches.end = time.monotonic() + 60 * options.minutes
    options.cache.mkdir(parents=True, exist_ok=True)
    batches.done = lambda: _save(options, batches.rows)
    run_batches(batches, options.jobs, lambda text: print(text, file=sys.stderr, flush=True))
    batches.done()
    for row in batches.rows:
        if row["status"] in ("wrong", "crash"):
            print(f"{row['status']} {row['entry']} {row['dtype']} {row.get('source', '')}: {row['reason']}")
    print(summary(batches.rows))
    if batches.left:
        print(f"not begun: {sum(len(names) for _, names in batches.left)} entries")
    return 1 if any(r["status"] in ("wrong", "crash") for r in batches.rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="torch's op_db and module_db through the compiler")
    parser.add_argument("--kind", choices=tuple(DEFAULTS), default="samples", help="what is tried of each entry")
    parser.add_argument("--dtype", default="", help="with commas between; all by default")
    parser.add_argument("--match", default="", help="a regular expression for names of entries")
    parser.add_argument("--status", default="", help="only entries that the results have with one of these statuses")
    parser.add_argument("--reason", default="", help="a regular expression for the reasons in the results")
    parser.add_argument("--part", default="0/1", help="i/n: the i-th of n parts of the entries, from 0 on")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no further package is begun")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each entry, of the kind samples")
    parser.add_argument("--family", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--device", action="store_true", help="with --family cuda: packages for this machine's GPU")
    parser.add_argument("--batch", type=int, default=BATCH, help="entries of a package")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--silence", type=float, default=SILENCE, help="seconds that a package may take")
    parser.add_argument("--out", type=Path, help="instead of the results' own file")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "conformance")
    options = parser.parse_args()
    options.out = options.out or DEFAULTS[options.kind][options.family]
    return options


def _left(options: argparse.Namespace) -> deque[tuple[str, list[str]]]:
    """The batches that the options ask for."""
    from .catalog import DTYPES
    from .sources import entries_of

    before = {(r["entry"], r["dtype"]): r for r in _read(options)}
    part, parts = (int(n) for n in options.part.split("/"))
    left: deque[tuple[str, list[str]]] = deque()
    for dtype in options.dtype.split(",") if options.dtype else DTYPES:
        every = entries_of(options.kind).items()
        names = [n for n, e in every if e.takes(DTYPES[dtype]) and re.search(options.match, n)]
        if options.status or options.reason:
            known = {n: before.get((n, dtype), {"status": "new", "reason": ""}) for n in names}
            wanted = options.status.split(",") if options.status else None
            names = [n for n in names if wanted is None or known[n]["status"] in wanted]
            names = [n for n in names if re.search(options.reason, known[n]["reason"])]
        names = names[part::parts]
        count = -(-len(names) // options.batch)  # an entry of every kind in each, so that none is long
        left.extend((dtype, names[i::count]) for i in range(count))
    return left


def _read(options: argparse.Namespace) -> list[Row]:
    """The rows of a file of the kind, those of an entry's worst source last."""
    if options.kind == "samples":
        return read(options.out)
    worst = ("none", "untraced", "right", "refused", "wrong", "crash")
    return sorted(compact.read(options.out), key=lambda r: worst.index(r["status"]))


def _save(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    from .sources import entries_of

    order = list(entries_of(options.kind))
    if options.kind != "samples":
        compact.write(options.out, [*compact.read(options.out), *rows], order)
        return
    after = {(r["entry"], r["dtype"]): r for r in [*read(options.out), *rows]}
    write(options.out, list(after.values()), order)


if __name__ == "__main__":
    sys.exit(main())
