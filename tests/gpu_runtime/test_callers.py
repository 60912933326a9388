"""Several streams, threads and processes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from mycc.runtime.errors import InputError, RunError

from ..helpers.threads import in_threads
from .support import Driver, Loaded, X, in_child, refused


@in_child
def test_calls_on_two_streams_do_not_share_memory_at_once(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    streams = [driver.stream(), driver.stream(), driver.stream(blocking=True)]
    outputs = []
    for i in range(12):
        x = driver.array(np.full(16, float(i), np.float32))
        outputs.append(model("chain", x, stream=streams[i % 3]))
        assert x.streams == [streams[i % 3]]
    for stream in reversed(streams):  # the last first: what is not ordered comes in the wrong order
        driver.synchronize(stream)
    for i, y in enumerate(outputs):
        assert (y.numpy() == 120 * i).all()


@in_child
def test_more_streams_than_states_wait_on_the_device(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    streams = [driver.stream() for _ in range(20)]
    inputs = [driver.array(np.full(16, float(i), np.float32)) for i in range(20)]
    outputs = [model("counted", x, stream=s) for x, s in zip(inputs, streams, strict=True)]
    for stream in reversed(streams):
        driver.synchronize(stream)
    for i, y in enumerate(outputs):
        assert (y.numpy() == i).all()


@in_child
def test_a_new_stream_at_an_old_address_is_another(driver_path: Path, gpu_package: bytes) -> None:
    """States are told apart by the streams' ids: handles come again."""
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    first = driver.stream()
    y = model("chain", driver.array(X), stream=first)
    driver.c.cuStreamDestroy_v2(ctypes.c_void_p(first))
    z = model("chain", driver.array(X + 1), stream=driver.stream())
    np.testing.assert_array_equal(z.numpy(), 120 * (X + 1))
    np.testing.assert_array_equal(y.numpy(), 120 * X)
    assert "its stream" in refused(RunError, lambda: model("chain", driver.array(X), stream=first))


@in_child
def test_stream_objects(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    handle = driver.stream()
    torch_like = type("Stream", (), {"cuda_stream": handle})()
    cupy_like = type("Stream", (), {"ptr": handle})()
    protocol = type("Stream", (), {"__cuda_stream__": lambda self: (0, handle)})()
    for stream in (torch_like, cupy_like, protocol, handle):
        x = driver.array(X)
        model("chain", x, stream=stream)
        assert x.streams == [handle]
    assert "stream has to be a CUDA stream" in refused(InputError, lambda: model("chain", X, stream="main"))


@in_child
def test_many_threads(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    problems: list[str] = []

    def work(seed: int) -> None:
        for i in range(40):
            n = 1 + (seed * 7 + i) % 5
            x = np.full(n, float(seed * 100 + i), np.float32)
            y = model("chain", x)
            if not (y == 120 * x).all():
                problems.append(f"{seed} {i}: {y}")

    in_threads(work, 6)
    assert problems == []
    assert driver.log == ""


@in_child
def test_the_capture_of_a_graph_is_refused(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    x = driver.array(X)
    driver.c.fake_set_capturing(1)
    assert "is being captured into a CUDA graph" in refused(RunError, lambda: model("chain", x))
    driver.c.fake_set_capturing(0)
    np.testing.assert_array_equal(model("chain", x).numpy(), 120 * X)
