"""Programs that decide by what the device has computed: sizes that the run finds, loops, and outputs of such sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.runtime.errors import RunError

from ..helpers.threads import in_threads
from .support import NAMES, Driver, Loaded, X, in_child, refused

MIXED = np.where(np.arange(24) % 3 == 0, X + 1, -X - 1).astype(np.float32)  # 8 are positive
ZERO = np.zeros(1, np.int64)


def check(found: list[Any], x: np.ndarray[Any, Any]) -> None:
    y, z = found
    np.testing.assert_array_equal(np.asarray(y), 6 * x[x > 0])
    np.testing.assert_array_equal(np.asarray(z), x)


@pytest.mark.parametrize("interface", ["pybind11", "ctypes"])
@pytest.mark.parametrize("launch", ["auto", "direct", "graph", "debug"])
@in_child
def test_outputs_of_sizes_that_the_run_finds(
    driver_path: Path, gpu_package: bytes, interface: str, launch: str
) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package, interface, launch=launch)
    driver.context()
    for x in (MIXED, -X - 1, MIXED[:5], X[:17], np.concatenate([MIXED, MIXED])[:30], MIXED):
        check(model("kept", x), x)
        on_device = model("kept", driver.array(x))
        assert [t.__dlpack_device__()[0] for t in on_device] == [2, 2]
        check([t.numpy() for t in on_device], x)
    assert driver.count("cuGraphLaunch") == 0
    assert model.native.profile(NAMES["kept"], [MIXED], 2)  # and the model goes on
    check(model("kept", MIXED), MIXED)


@in_child
def test_sizes_are_checked(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    many = np.ones(17, np.float32)
    driver.context()
    for x in (many, driver.array(many)):
        text = refused(RunError, lambda x=x: model("kept", x))
        assert text == "nonzero (model.py:4) is 17, but has to be 0..16"
    for x in (many[:13], driver.array(many[:13])):
        text = refused(RunError, lambda x=x: model("kept", x))
        assert text == "model.py:5: u0 != 13 does not hold"
    check(model("kept", MIXED), MIXED)
    check([t.numpy() for t in model("kept", driver.array(MIXED))], MIXED)


@in_child
def test_loops_by_flags(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    for start, end in ((1, 128), (100, 100), (60, 120), (0.5, 128)):
        (found,) = model("growing", np.array([start], np.float32), ZERO)
        assert found == end
    driver.context()
    found = model("growing", driver.array(np.array([3], np.float32)), driver.array(ZERO))
    assert found.numpy() == [192]


@in_child
def test_failures_end_the_run(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    one = np.ones(1, np.float32)
    text = refused(RunError, lambda: model("growing", one, np.array([9], np.int64)))
    assert text == "index out of range in embedding (model.py:8)"
    assert model("growing", one, ZERO) == [128]
    for symbol in ("cuLaunchKernelEx", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"):
        for after in (0, 1):
            driver.fail(symbol, 999, after=after)
            assert "CUDA_ERROR_UNKNOWN" in refused(RunError, lambda: model("growing", one, ZERO))
            assert model("growing", one, ZERO) == [128]


@in_child
def test_out_of_memory_on_the_way(driver_path: Path, gpu_package: bytes) -> None:
    """Buffers, outputs, scratch memory and counters: wherever it ends, the next call works."""
    driver = Driver(driver_path)
    texts = []
    for after in range(5):
        model = Loaded(gpu_package)
        driver.fail("cuMemAlloc_v2", 999, after=after)
        texts.append(refused(RunError, lambda m=model: m("kept", MIXED)))
        check(model("kept", MIXED), MIXED)
    assert all("no memory of cuda:0" in text for text in texts)


@in_child
def test_callers_on_streams_of_their_own(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)

    def call(seed: int) -> None:
        driver.context()
        stream = driver.stream()
        for turn in range(6):
            x = np.random.default_rng(seed * 100 + turn).standard_normal(20).astype(np.float32)
            x[16:] = -1
            found = model("kept", driver.array(x), stream=stream)
            driver.synchronize(stream)
            check([t.numpy() for t in found], x)

    in_threads(call, 3)
