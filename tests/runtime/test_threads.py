"""The thread pool: every index once, many callers, forks; answers never depend on threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Loaded
from .packages import WEIGHTS


def covered(model: Loaded, n: int, grain: int, threads: int) -> None:
    request = np.zeros(n, np.int64)
    request[0] = grain
    visits, workers = model("cover", request)
    assert (visits == 1).all(), f"n {n}, grain {grain}"
    assert workers.min() >= 0
    assert workers.max() < threads


@pytest.mark.parametrize("threads", [1, 2, 4, 9])
def test_each_index_once(library: Any, package: bytes, threads: int) -> None:
    model = Loaded(library.load_memory(package, threads=threads))
    for n in (1, 2, 3, 16, 17, 100, 5000):
        for grain in (1, 3, 64, 10**9, -5):
            covered(model, n, grain, threads)


def test_loops_in_a_row_see_each_other(library: Any, package: bytes) -> None:
    start = np.random.default_rng(0).integers(0, 1000, 997)
    expected = np.roll(start, -200 % 997) + 200
    for threads in (1, 2, 5):
        model = Loaded(library.load_memory(package, threads=threads))
        for _ in range(20):
            np.testing.assert_array_equal(model("interleave", start), expected)


def many(count: int, body: Any) -> None:
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            body(index)
        except BaseException as error:  # the thread's failure is the test's
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a call hangs"
    if failures:
        raise failures[0]


def test_sixteen_callers(model: Loaded) -> None:
    def body(index: int) -> None:
        random = np.random.default_rng(index)
        for _ in range(60):
            x = random.standard_normal((int(random.integers(1, 65)), 4), np.float32)
            np.testing.assert_array_equal(model("affine", x), 2 * x + WEIGHTS)
            x = random.standard_normal(8 * int(random.integers(1, 90)) + 1).astype(np.float32)
            np.testing.assert_array_equal(model("chain", x), (x + 1) * 3 - 2)
            covered(model, int(random.integers(1, 3000)), int(random.integers(1, 40)), 4)

    many(16, body)


def test_callers_of_two_models(library: Any, package: bytes) -> None:
    models = [Loaded(library.load_memory(package, threads=threads)) for threads in (2, 3)]
    start = np.arange(500)
    expected = np.roll(start, -200) + 200

    def body(index: int) -> None:
        for _ in range(15):
            np.testing.assert_array_equal(models[index % 2]("interleave", start), expected)

    many(6, body)


def test_loading_and_running_at_once(library: Any, package: bytes) -> None:
    def body(index: int) -> None:
        for _ in range(10):
            model = Loaded(library.load_memory(package, threads=2))
            covered(model, 500, 7, 2)

    many(4, body)


def test_workers_sleep(model: Loaded) -> None:
    covered(model, 5000, 1, 4)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05, "idle workers must not spin"


def test_fork(model: Loaded) -> None:
    covered(model, 5000, 1, 4)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for _ in range(20):
                covered(model, 5000, 1, 4)
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        pytest.fail("the child hangs")
    covered(model, 5000, 1, 4)


def test_fork_while_others_run(model: Loaded) -> None:
    stop = threading.Event()

    def body(index: int) -> None:
        while index and not stop.is_set():
            covered(model, 300, 3, 4)
        if index == 0:
            try:
                for _ in range(5):
                    test_fork(model)
            finally:
                stop.set()

    many(4, body)


def test_default_threads_follow_the_affinity(library_path: Path, package_file: Path) -> None:
    code = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from mycc.runtime import _binding; "
        f"print(_binding.Library({str(library_path)!r}).load_file({str(package_file)!r}).threads)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
