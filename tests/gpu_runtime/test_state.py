"""State in the memory of a GPU, and inputs that kernels write to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.runtime.errors import InputError

from .support import NAMES, Driver, Loaded, in_child, refused

ONES = np.ones(4, np.float32)


def total(model: Loaded, state: Any) -> Any:
    return model.native.run(NAMES["total"], [ONES], None, None, state)[0]


@pytest.mark.parametrize("interface", ["pybind11", "ctypes"])
@pytest.mark.parametrize("launch", ["auto", "direct", "graph", "debug"])
@in_child
def test_state_on_the_device(driver_path: Path, gpu_package: bytes, interface: str, launch: str) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package, interface, launch=launch)
    driver.context()
    for turn in range(1, 5):  # from host memory
        np.testing.assert_array_equal(model("total", ONES), turn * ONES)
    x = driver.array(2 * ONES)  # and on the device
    np.testing.assert_array_equal(model("total", x).numpy(), 6 * ONES)
    np.testing.assert_array_equal(model.native.state_read(None, 0), 6 * ONES)
    mine = model.native.new_state()
    np.testing.assert_array_equal(total(model, mine), ONES)
    model.native.state_write(mine, 0, 10 * ONES)
    model.native.state_write(None, 0, driver.array(20 * ONES))
    np.testing.assert_array_equal(total(model, mine), 11 * ONES)
    np.testing.assert_array_equal(model("total", ONES), 21 * ONES)
    view = model.native.state_view(mine, 0)
    assert view.__dlpack_device__()[0] == 2
    del mine  # the view keeps the memory
    np.testing.assert_array_equal(view.numpy(), 11 * ONES)
    model.native.profile(NAMES["total"], [ONES], 2)  # on a state of its own
    model.native.state_reset(None)
    np.testing.assert_array_equal(model("total", ONES), ONES)


@in_child
def test_one_state_on_two_streams(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    streams = [driver.stream(), driver.stream()]
    outputs = [model("total", driver.array(ONES), stream=streams[i % 2]) for i in range(8)]
    for stream in reversed(streams):
        driver.synchronize(stream)
    assert [float(y.numpy()[0]) for y in outputs] == list(range(1, 9))


@pytest.mark.parametrize("interface", ["pybind11", "ctypes"])
@in_child
def test_inputs_that_are_written_to(driver_path: Path, gpu_package: bytes, interface: str) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package, interface)
    driver.context()
    b = np.arange(4, dtype=np.float32)
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(model("bump", x, b), ONES)
    np.testing.assert_array_equal(x, 1 + b)
    wide = np.ones(8, np.float32)
    model("bump", wide[::2], b)
    np.testing.assert_array_equal(wide, np.stack([1 + b, ONES], 1).reshape(-1))
    for offset in (0, 4):  # an address that kernels do not take: there through a copy
        there = driver.array(ONES, offset=offset)
        y = model("bump", there, driver.array(b))
        np.testing.assert_array_equal(y.numpy(), ONES)
        found = model("affine", driver.array(np.zeros((1, 4), np.float32)))  # the stream goes on
        assert found.numpy().shape == (1, 4)
        model.native.synchronize()
        np.testing.assert_array_equal(model("bump", there, driver.array(0 * b)).numpy(), 1 + b)
    x.flags.writeable = False
    assert "is read-only, but the model writes to it" in refused(InputError, lambda: model("bump", x, b))
