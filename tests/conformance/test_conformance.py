"""A fixed sample of the conformance suite: entries that results.json has as right are right, and none is wrong."""

from __future__ import annotations

import select
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from . import run
from .catalog import DTYPES, entries
from .run import RESULTS, RESULTS_CUDA, Batches, read, run_batches
from .worker import work

#: batches: dtype, every n-th entry, from which one on
BATCHES = (
    ("float32", 24, 3),
    ("float32", 24, 15),
    ("float64", 60, 7),
    ("bfloat16", 60, 31),
    ("int64", 60, 11),
    ("complex64", 60, 20),
)
SAMPLES = 2
KNOWN = {(row["entry"], row["dtype"]): row for row in read(RESULTS)}


@pytest.mark.parametrize(("dtype", "step", "first"), BATCHES, ids=[f"{d}-{first}" for d, _, first in BATCHES])
def test_a_sample_of_the_entries(dtype: str, step: int, first: int, tmp_path: Path) -> None:
    names = [n for n, e in entries().items() if e.takes(DTYPES[dtype])][first::step]
    said: list[dict[str, Any]] = []
    batch = {"dtype": dtype, "entries": names, "samples": SAMPLES}
    work({**batch, "folder": str(tmp_path), "cache": str(tmp_path / "cache")}, said.append)
    rows = {message["entry"]: message for message in said if "status" in message}
    assert set(rows) == set(names)
    broken = {n: r["reason"] for n, r in rows.items() if r["status"] in ("wrong", "crash")}
    assert not broken
    right = [n for n in names if KNOWN.get((n, dtype), {}).get("status") == "right"]
    lost = {n: rows[n]["reason"] for n in right if rows[n]["status"] == "refused"}
    assert not lost


#: entries whose gradients have operators of their own
WITH_GRADIENTS = ("cdist", "gather", "linalg.det", "nn.functional.embedding_bag", "sgn")


@pytest.mark.slow
def test_a_sample_of_the_gradients(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    batch = {"dtype": "float32", "entries": list(WITH_GRADIENTS), "samples": SAMPLES, "kind": "gradients"}
    work({**batch, "folder": str(tmp_path), "cache": str(tmp_path / "cache")}, said.append)
    rows = {message["entry"]: message for message in said if "status" in message}
    assert {name: row["status"] for name, row in rows.items()} == dict.fromkeys(WITH_GRADIENTS, "right"), rows


#: entries whose kernels are of many forms
ON_GPU = (
    "add", "cumsum", "index_add", "linalg.cholesky", "logcumsumexp", "matmul", "nn.functional.layer_norm",
    "scatter_reduce.sum", "sort", "special.i0e", "topk",
)  # fmt: skip


def test_a_sample_of_the_entries_as_gpu_kernels() -> None:
    said: list[dict[str, Any]] = []
    work({"dtype": "float32", "entries": list(ON_GPU), "samples": SAMPLES, "family": "cuda"}, said.append)
    rows = {message["entry"]: message for message in said if "status" in message}
    assert {name: row["status"] for name, row in rows.items()} == dict.fromkeys(ON_GPU, "right"), rows


def test_nothing_is_wrong_on_a_gpu() -> None:
    statuses = [row["status"] for row in read(RESULTS_CUDA)]
    assert not {"wrong", "crash"} & set(statuses)
    assert statuses.count("right") >= 520


def test_results_have_every_entry_and_none_is_wrong() -> None:
    missing = [
        (n, d) for d, dtype in DTYPES.items() for n, e in entries().items() if e.takes(dtype) and (n, d) not in KNOWN
    ]
    assert not missing, f"run make conformance: {missing[:5]}"
    assert not {key for key, row in KNOWN.items() if row["status"] in ("wrong", "crash")}


@pytest.mark.parametrize("dtype", DTYPES)
def test_95_of_100_entries_are_right(dtype: str) -> None:
    """The five that torch runs on GPUs alone (jiterator) are among the others."""
    statuses = [row["status"] for (_, d), row in KNOWN.items() if d == dtype]
    assert statuses.count("right") >= 0.95 * len(statuses)


#: a worker for which every entry is right, but one that never ends and one that ends the process
_FAKE_WORKER = """
import json, os, sys, time
for line in sys.stdin:
    batch = json.loads(line)
    for name in batch["entries"]:
        print(json.dumps({"at": name}), flush=True)
        if name == "hangs":
            time.sleep(1000)
        if name == "dies":
            os._exit(3)
    for name in batch["entries"]:
        row = {"entry": name, "dtype": batch["dtype"], "status": "right", "samples": 1, "right": 1, "reason": ""}
        print(json.dumps(row), flush=True)
    print(json.dumps({"done": True}), flush=True)
"""


def test_an_entry_that_hangs_or_dies_is_a_crash_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(limited: bool) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _FAKE_WORKER]
        return subprocess.Popen(
            command, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    monkeypatch.setattr(run, "_start", start)
    batches = Batches(deque([("float32", ["abs", "hangs", "add", "dies"])]), tmp_path, silence=2)
    run_batches(batches, 2, lambda _: None)
    assert {row["entry"]: (row["status"], row["reason"]) for row in batches.rows} == {
        "abs": ("right", ""),
        "add": ("right", ""),
        "hangs": ("crash", "takes longer than 2 s"),
        "dies": ("crash", "the process died with code 3"),
    }


_PARENT = """
import os, subprocess, sys, time
code = "import os, sys, time; from tests.conformance.worker import end_with_parent;" \\
    "print(os.getpid(), flush=True); time.sleep(float(sys.argv[2])); end_with_parent(int(sys.argv[1]))"
subprocess.Popen([sys.executable, "-c", code, str(os.getpid()), sys.argv[1]], start_new_session=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("late", [0, 2], ids=["asks before", "asks after"])
def test_workers_end_when_their_parent_is_killed(late: int) -> None:
    command = [sys.executable, "-c", _PARENT, str(late)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=run.ROOT) as parent:
        assert parent.stdout is not None
        try:
            assert select.select([parent.stdout], [], [], 120)[0], "the worker does not start"
            worker = int(parent.stdout.readline())
            assert Path(f"/proc/{worker}").exists()
        finally:
            parent.kill()
        # The worker holds the other end of the pipe until it ends.
        ended, _, _ = select.select([parent.stdout], [], [], 60)
        assert ended
        assert parent.stdout.read() == ""


@pytest.mark.parametrize(("family", "device", "by"), [("cpu", False, None), ("cuda", True, "device")])
def test_rows_say_what_ran_them(family: str, device: bool, by: str | None, tmp_path: Path) -> None:
    batches = Batches(deque(), tmp_path, family=family, device=device)
    assert batches.by.get("by") == by
