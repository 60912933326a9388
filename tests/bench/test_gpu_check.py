"""bench/gpu_check.py with workers that only pretend: who waits for whom, what is printed and written, what is left."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Answers at once or later, by the name of its peer; writes what it does, and when, to a file beside the packages.
PRETENDER = """
import json, os, sys, time
task = json.loads(sys.argv[1])
name = f"{task['model']}:{task['batch']}:{task['peer']}"

def note(what):
    with open(os.path.join(task["folder"], "log"), "a") as log:
        log.write(json.dumps([time.monotonic(), name, what, os.environ["CUDA_VISIBLE_DEVICES"]]) + "\\n")

for _ in range({"compile:slow": 30, "compile:never": 100000}.get(task["peer"], 0)):
    time.sleep(0.1)
    note("compiles")
if task["peer"] == "compile:dies":
    sys.exit("no such mode")
print("a line of a library")
print(json.dumps({"eager_error": 1e-2, "error_": 1e-2, "same_bits": True}), flush=True)
for line in sys.stdin:
    note("begin")
    time.sleep(0.04)
    note("end")
    print(json.dumps({"time_ms": 1.0 if task["peer"] == "mycc" else 2.0, "call_ms": 3.0}), flush=True)
"""


Run = tuple[str, list[dict[str, Any]], list[tuple[float, str, str, str]]]


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """What a run printed, its rows, and what its workers did: (seconds, worker, word, device)."""
    folder = tmp_path_factory.mktemp("gpu_check")
    (folder / "pretender.py").write_text(PRETENDER)
    command = [sys.executable, str(ROOT / "bench/gpu_check.py"), "--worker", str(folder / "pretender.py")]
    command += ["--models", "mlp,bert", "--batches", "1,2", "--devices", "0,1", "--jobs", "20", "--folder", str(folder)]
    command += ["--peers", "graph,compile:slow,compile:never,compile:dies", "--deadlines", "2,6"]
    command += ["--json", str(folder / "rows.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    log = [tuple(json.loads(line)) for line in (folder / "log").read_text().splitlines()]
    return done.stdout, json.loads((folder / "rows.json").read_text()), sorted(log)


def test_a_case_is_timed_alone_on_its_device(run: Run) -> None:
    """Between the begin and the end of a timing nothing else happens on the device, and nothing compiles anywhere."""
    log = run[2]
    for device in "01":
        here = [(who, what) for _, who, what, gpu in log if gpu == device or what == "compiles"]
        for (who, what), (next_who, next_what) in pairwise(here):
            if what == "begin":
                assert (next_who, next_what) == (who, "end")
    assert {gpu for _, _, what, gpu in log if what == "begin"} == {"0", "1"}


def test_what_compiles_late_is_timed_at_the_next_deadline(run: Run) -> None:
    rows = {(row["model"], row["batch"], row["peer"]): row for row in run[1]}
    for case in (("mlp", 1), ("mlp", 2), ("bert", 1), ("bert", 2)):
        assert rows[*case, "mycc"]["time_ms"] == 1.0
        assert len(rows[*case, "graph"]["rounds"]) == 6
        assert len(rows[*case, "compile:slow"]["rounds"]) == 3
        assert "rounds" not in rows[*case, "compile:never"]


def test_what_gives_no_times_says_why(run: Run) -> None:
    lines = run[0].splitlines()
    assert sum("compile:never" in line and "was not ready in time" in line for line in lines) == 4
    assert sum("compile:dies" in line and "no such mode" in line for line in lines) == 4
    assert lines[-1] == "geometric mean of the ratios: 2.00"
