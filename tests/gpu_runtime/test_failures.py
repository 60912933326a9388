"""Failures of kernels, launches and the driver: errors that name them, and a process that goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
from mycc.runtime.errors import RunError

from .support import SECONDS, Driver, Loaded, X, in_child, refused


@in_child
def test_an_index_out_of_range_names_its_place(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    good, bad = np.array([0, 1], np.int64), np.array([0, 9], np.int64)
    text = refused(RunError, lambda: model("lookup", bad))
    assert text == "index out of range in embedding (model.py:7)"
    np.testing.assert_array_equal(model("lookup", good), [0.5, -1.0])
    driver.context()
    device_bad, device_good = driver.array(bad), driver.array(good)
    model("lookup", device_bad)  # returns before it has run
    text = refused(RunError, model.native.synchronize)
    assert text == "an earlier call failed: index out of range in embedding (model.py:7)"
    model.native.synchronize()
    model("lookup", device_bad).numpy()
    assert "an earlier call failed: index out of range" in refused(RunError, lambda: model("lookup", device_good))
    np.testing.assert_array_equal(model("lookup", device_good).numpy(), [0.5, -1.0])


@in_child
def test_a_failing_launch_names_its_kernel(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.fail("cuLaunchKernelEx", 999, after=2)
    text = refused(RunError, lambda: model("chain", X))
    assert text.startswith("chain: kernel 2 (scale_dependent): CUDA_ERROR_UNKNOWN")
    for _ in range(3):
        np.testing.assert_array_equal(model("chain", X), 120 * X)
    for symbol in ("cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize", "cuMemcpyDtoHAsync_v2"):
        driver.fail(symbol, 999)
        refused(RunError, lambda: model("chain", X))
        np.testing.assert_array_equal(model("chain", X), 120 * X)


@in_child
def test_a_kernel_that_crashes_is_an_error(driver_path: Path, gpu_package: bytes) -> None:
    Driver(driver_path)
    model = Loaded(gpu_package)
    text = refused(RunError, lambda: model("crash", X))
    assert "crash: a kernel, or the copy of its outputs: CUDA_ERROR_ILLEGAL_ADDRESS" in text
    assert 'launch="debug"' in text
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in refused(RunError, lambda: model("chain", X))


@in_child
def test_debug_mode_names_the_kernel_that_crashes(driver_path: Path, gpu_package: bytes) -> None:
    Driver(driver_path)
    model = Loaded(gpu_package, launch="debug")
    np.testing.assert_array_equal(model("chain", X), 120 * X)
    assert refused(RunError, lambda: model("crash", X)).startswith(
        "crash: kernel 1 (crash): CUDA_ERROR_ILLEGAL_ADDRESS"
    )


@in_child
def test_a_program_that_misbehaves_is_refused(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    model("odd", driver.array(X))
    text = refused(RunError, lambda: model("odd", driver.array(X)))
    assert "the launches differ from those of an earlier call with the same sizes" in text
    text = refused(RunError, lambda: model("wide", X))
    assert "these sizes need a grid of 2 x 1680000 x 1 blocks, which is too large" in text
    np.testing.assert_array_equal(model("chain", X), 120 * X)


@in_child
def test_a_forked_child_is_told(driver_path: Path, gpu_package: bytes) -> None:
    Driver(driver_path)
    model = Loaded(gpu_package)
    model("chain", X)
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            text = refused(RunError, lambda: model("chain", X))
            os._exit(0 if "was forked from one that had opened the GPU" in text else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(model("chain", X), 120 * X)
