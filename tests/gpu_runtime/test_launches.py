"""Launches on a GPU: one by one, as graphs, updated, kept by sizes, timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .support import Driver, Loaded, X, in_child, package


@in_child
def test_sizes_that_come_again_become_a_graph(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    for _ in range(5):
        np.testing.assert_array_equal(model("chain", X), 120 * X)
    assert driver.count("cuLaunchKernelEx") == 4
    assert driver.count("dependent launches") == 3
    assert (driver.count("cuGraphInstantiateWithFlags"), driver.count("cuGraphLaunch")) == (1, 4)
    assert driver.count("dependent edges") == 3


@in_child
def test_ways_to_launch(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    for launch, direct, graphs in (("direct", 12, 0), ("debug", 12, 0), ("graph", 0, 3), ("auto", 4, 2)):
        before = driver.count("cuLaunchKernelEx"), driver.count("cuGraphLaunch")
        model = Loaded(gpu_package, launch=launch)
        for _ in range(3):
            np.testing.assert_array_equal(model("chain", X), 120 * X)
        after = driver.count("cuLaunchKernelEx"), driver.count("cuGraphLaunch")
        assert (after[0] - before[0], after[1] - before[1]) == (direct, graphs)


@in_child
def test_a_package_may_say_how_it_is_launched(driver_path: Path, program: bytes) -> None:
    """What `mycc compile --mode reduce-overhead` writes; the one who loads it may say otherwise."""
    driver = Driver(driver_path)
    written = package(program, "sm_90", launch="graph")
    Loaded(written)("chain", X)
    assert (driver.count("cuLaunchKernelEx"), driver.count("cuGraphLaunch")) == (0, 1)
    Loaded(written, launch="direct")("chain", X)
    assert (driver.count("cuLaunchKernelEx"), driver.count("cuGraphLaunch")) == (4, 1)


@in_child
def test_only_changed_nodes_are_updated(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package, launch="graph")
    driver.context()
    a, b = driver.array(X), driver.array(X + 1)
    first = model("chain", a)
    assert driver.count("cuGraphExecKernelNodeSetParams_v2") == 0
    second = model("chain", b)  # another input and another output: the first and the last of four kernels
    assert driver.count("cuGraphExecKernelNodeSetParams_v2") == 2
    third = model("chain", a)
    assert driver.count("cuGraphExecKernelNodeSetParams_v2") == 4
    assert driver.count("cuGraphInstantiateWithFlags") == 1
    np.testing.assert_array_equal(third.numpy(), 120 * X)
    np.testing.assert_array_equal(second.numpy(), 120 * (X + 1))
    np.testing.assert_array_equal(first.numpy(), 120 * X)


@in_child
def test_nothing_is_updated_when_all_addresses_stay(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    for _ in range(10):
        model("chain", X)  # host arrays: the device's addresses are the runtime's own
    assert driver.count("cuGraphExecKernelNodeSetParams_v2") == 0
    np.testing.assert_array_equal(model("chain", X + 3), 120 * (X + 3))


@in_child
def test_graphs_are_kept_by_sizes_and_bounded(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package, launch="graph")
    for n in [8, 16, 8, 16, 8]:
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model("chain", x), 120 * x)
    assert driver.count("cuGraphInstantiateWithFlags") == 2
    for n in range(1, 60):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model("chain", x), 120 * x)
    made, gone = driver.count("cuGraphInstantiateWithFlags"), driver.count("cuGraphExecDestroy")
    assert made - gone == 16
    for n in range(59, 44, -1):  # the latest are still there
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model("chain", x), 120 * x)
    assert driver.count("cuGraphInstantiateWithFlags") == made


@in_child
def test_sizes_that_come_once_leave_the_graphs_of_others(driver_path: Path, gpu_package: bytes) -> None:
    """A server's steps, whose numbers of texts come again, between prompts whose lengths do not."""
    driver = Driver(driver_path)
    model = Loaded(gpu_package)

    def call(n: int) -> None:
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(model("chain", x), 120 * x)

    steps = range(1, 17)
    for n in (*steps, *steps):
        call(n)
    made = driver.count("cuGraphInstantiateWithFlags")
    assert made == len(steps)
    for n in range(100, 180):
        call(n)
        call(1 + n % 16)
    assert driver.count("cuGraphInstantiateWithFlags") == made
    assert driver.count("cuGraphExecDestroy") == 0
    for n in (200, 201, 200, 201):  # a new size that comes again has its graph, in place of the oldest one
        call(n)
    assert driver.count("cuGraphInstantiateWithFlags") == made + 2
    assert driver.count("cuGraphExecDestroy") == 2


@in_child
def test_graphs_of_profiles_are_bounded(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    for n in range(1, 41):
        model.native.profile(1, [np.arange(n, dtype=np.float32)], 2)
    assert driver.count("cuGraphInstantiateWithFlags") - driver.count("cuGraphExecDestroy") == 16


@in_child
def test_zeros_scratch_and_tensor_maps(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    for launch in ("auto", "direct", "graph", "debug"):
        model = Loaded(gpu_package, launch=launch)
        for n in (10, 300, 20):
            x = np.arange(n, dtype=np.float32)
            for _ in range(3):
                np.testing.assert_array_equal(model("counted", x), x)
        maps = driver.count("cuTensorMapEncodeTiled")
        x = np.arange(32, dtype=np.float32).reshape(4, 8)
        for i in range(4):
            np.testing.assert_array_equal(model("mapped", x + i), x + i)
        assert driver.count("cuTensorMapEncodeTiled") == maps + 1  # the address stays, and so does the map
    assert driver.log == ""


@in_child
def test_profile_has_a_time_for_each_kernel(driver_path: Path, gpu_package: bytes) -> None:
    Driver(driver_path)
    model = Loaded(gpu_package)
    assert model.native.kernels(1) == ["scale_a", "scale_b", "scale_c", "scale_d"]
    times = model.native.profile(1, [X], 4)
    assert [round(t, -1) for t in times] == [2000] * 4  # each kernel of the fake takes 2 us
    np.testing.assert_array_equal(model("chain", X), 120 * X)
    assert model.native.memory(1, [X]) == (256, 256)
