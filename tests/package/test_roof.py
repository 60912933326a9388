"""The machine's roof, and kernels beside it."""

from __future__ import annotations

import ctypes
import json
import threading

import pytest
from mycc.runtime import roof as roofs
from mycc.runtime.measure import _beside_roof, kernel_sums, most_lost, products, timing
from mycc.runtime.roof import Roof, machine_facts, measure_roof

SIZES = roofs.WORKING_SETS
ROOF = Roof(1, 100.0, tuple(zip(SIZES, (200.0, 100.0, 30.0), strict=True)),
            tuple(zip(SIZES, (160.0, 80.0, 20.0), strict=True)))  # fmt: skip


def test_measured_roof_is_of_this_machine() -> None:
    found = measure_roof(2, seconds=0.005)
    assert found is not None
    assert found.threads == 2
    assert found.gflops > 1
    assert [size for size, _ in found.read] == list(SIZES)
    assert all(rate > 0.1 for _, rate in (*found.read, *found.copy))
    assert found.memory == found.read[-1][1]
    assert json.loads(json.dumps(found.as_dict()))["gflops"] == found.gflops
    assert machine_facts()["cores"] >= 1


def test_no_roof_without_the_measuring_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofs, "_loaded", [None])
    assert measure_roof(1) is None


def test_least_seconds() -> None:
    assert ROOF.seconds(flops=100e9, read=0, written=0, weights=0, all_weights=0) == pytest.approx(1)
    in_memory = ROOF.seconds(flops=0, read=0, written=0, weights=30e9, all_weights=1 << 40)
    assert in_memory == pytest.approx(1)
    cached = ROOF.seconds(flops=0, read=SIZES[0] / 2, written=SIZES[0] / 2, weights=0, all_weights=0)
    assert cached == pytest.approx(SIZES[0] / 160e9)
    between = ROOF.seconds(flops=0, read=1 << 20, written=0, weights=0, all_weights=0)
    assert (1 << 20) / 200e9 < between < (1 << 20) / 100e9


def test_a_kernel_is_bound_by_what_takes_longer() -> None:
    row = {"kind": "gemm", "flops": "200*m", "bytes": "12*m", "writes": "4*m", "weights": "4*m"}
    found = _beside_roof(row, {"m": 1000}, 4000.0, ROOF, 1000)
    assert found == {"percent": pytest.approx(50.0), "lost": pytest.approx(2.0), "bound": "compute"}
    estimate = _beside_roof({**row, "kind": "map"}, {"m": 1000}, 4000.0, ROOF, 1000)
    assert estimate["bound"] == "memory"
    assert estimate["percent"] < 50
    assert _beside_roof({"kind": "map"}, {}, 10.0, ROOF, 0) == {"percent": None, "lost": None, "bound": None}
    unknown = {**row, "flops": "200*m*u0", "bytes": "12*u0"}
    assert _beside_roof(unknown, {"m": 1000}, 10.0, ROOF, 0) == {"percent": None, "lost": None, "bound": None}
    assert products([row, unknown], {"m": 2}) == 400
    assert products([row, {**row, "kind": "map"}, {"kind": "conv"}], {"m": 2}) == 400


def test_sums_by_name_with_what_loses_most_first() -> None:
    rows = [("copy", 5.0, None), ("add", 3.0, 1.0), ("gemm", 9.0, 2.5), ("add", 4.0, 2.0)]
    kernels = [{"name": name, "us": us, "share": us / 21, "lost": lost} for name, us, lost in rows]
    found = [(row["name"], row["count"], row["us"], row["lost"]) for row in kernel_sums(kernels)]
    assert found == [("add", 2, 7.0, 3.0), ("gemm", 1, 9.0, 2.5), ("copy", 1, 5.0, None)]
    assert [row["name"] for row in sorted(kernels, key=most_lost)] == ["gemm", "add", "add", "copy"]


def test_timing() -> None:
    assert timing([3.0, 1.0, 2.0]) == {"median": 2.0, "best": 1.0, "p90": 3.0, "runs": 3}


def test_threads_are_measured_together() -> None:
    """All get the same lines of memory to count in, and the first one's rate is that of all: no sum of best moments."""
    seen: list[roofs.Team] = []

    def measure(team: roofs.Team) -> float:
        seen.append(team)
        return 7.0 if team[2] == 0 else 0.0

    assert roofs._together(3, measure) == 7.0
    assert sorted(team[2] for team in seen) == [0, 1, 2]
    assert len({team[:2] for team in seen}) == 1
    assert seen[0][0] % roofs.LINE == 0


def test_what_others_count_is_part_of_the_rate() -> None:
    """A second thread that has counted before the measurement adds nothing; one that counts meanwhile does."""
    library = roofs._library()
    lines = (ctypes.c_int64 * 32)()
    start = -ctypes.addressof(lines) % roofs.LINE // 8
    lines[start + 8] = 1 << 60
    address = ctypes.addressof(lines) + 8 * start
    assert library.mycc_roof_fma(address, 2, 0, 0.01) < 1e6
    assert library.mycc_roof_fma(address, 2, 1, 0.01) == 0.0, "the first thread has ended"

    lines[start + 1] = 0
    ended = threading.Event()

    def count() -> None:
        while not ended.is_set():
            lines[start + 8] += 1 << 40

    other = threading.Thread(target=count)
    other.start()
    try:
        together = library.mycc_roof_fma(address, 2, 0, 0.1)
    finally:
        ended.set()
        other.join()
    assert together > 1e5


def test_what_cores_give_just_now() -> None:
    """The rate over all of the time is at most that of its best window, and no small part of it."""
    best, now = roofs.measure_roof(1, 0.05), roofs.measure_gflops(1, 0.2)
    assert best is not None
    assert now is not None
    assert 0.05 * best.gflops < now < 1.5 * best.gflops
