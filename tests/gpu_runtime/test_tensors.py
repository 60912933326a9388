"""Tensors of a call on a GPU: those of the host and of the device, their memory, through every interface."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from mycc.runtime.errors import InputError, RunError

from .support import ENTRIES, Driver, Loaded, X, in_child, package, refused


@in_child
def test_host_arrays_come_back_as_host_arrays(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    for _ in range(3):
        y = model("affine", X.reshape(6, 4))
        assert isinstance(y, np.ndarray)
        np.testing.assert_array_equal(y, 2 * X.reshape(6, 4))
    np.testing.assert_array_equal(model("affine", X.reshape(4, 6).T), 2 * X.reshape(4, 6).T)  # strided
    assert model("affine", np.empty((0, 4), np.float32)).shape == (0, 4)
    assert driver.log == ""


@in_child
def test_device_arrays_are_not_copied(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    x = driver.array(X)
    copies = driver.count("cuMemcpyHtoDAsync_v2")
    y = model("chain", x)
    assert y.__dlpack_device__() == (2, 0)
    assert x.streams == [1]  # DLPack's number of the default stream
    assert driver.pending > 0  # the call has returned, and nothing has run
    assert (driver.count("cuMemcpyHtoDAsync_v2"), driver.count("cuMemcpyDtoDAsync_v2")) == (copies, 0)
    np.testing.assert_array_equal(y.numpy(), 120 * X)
    z = model("chain", y)  # an array of the runtime as an input
    np.testing.assert_array_equal(z.numpy(), 14400 * X)
    assert driver.log == ""


@in_child
def test_unaligned_inputs_are_copied_once(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    x = driver.array(X, offset=4)
    for _ in range(3):
        np.testing.assert_array_equal(model("chain", x).numpy(), 120 * X)
    assert driver.count("cuMemcpyDtoDAsync_v2") == 3


@in_child
def test_host_and_device_inputs_mix(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    for _ in range(3):
        y, z = model("pair", X, driver.array(X + 1))
        assert y.__dlpack_device__() == (2, 0)
        np.testing.assert_array_equal(y.numpy(), 2 * X + 1)
        np.testing.assert_array_equal(z.numpy(), 7 * X)
    results = [
        model("pair", np.full(4096, float(i), np.float32), driver.array(np.zeros(4096, np.float32))) for i in range(4)
    ]
    for i, (y, _) in enumerate(results):  # staging memory is not written again while it is read
        assert (y.numpy() == i).all()


@in_child
def test_tensors_that_do_not_fit_are_refused_by_name(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path, (90, 90))
    model = Loaded(gpu_package)
    driver.context()
    strided = driver.array(X.reshape(4, 6).T)
    assert "x: is not dense and row-major" in refused(
        InputError, lambda: model("affine", driver.array(X.reshape(4, 6).T))
    )
    assert strided.strides == [1, 6]
    other = driver.array(X, device=1)
    text = refused(InputError, lambda: model("chain", other))
    assert "x: is on cuda:1, the package runs on cuda:0" in text
    assert 'device="cuda:1"' in text
    assert "x: dtype is f64, the package was compiled for f32" in refused(
        InputError, lambda: model("chain", driver.array(X.astype(np.float64)))
    )
    before = driver.count("cuLaunchKernelEx")
    assert "dimension 0 (n) is 1048577, the package was compiled for 0..1048576" in refused(
        InputError, lambda: model("chain", np.zeros((1 << 20) + 1, np.float32))
    )
    assert driver.count("cuLaunchKernelEx") == before  # refused before launch
    np.testing.assert_array_equal(model("chain", X), 120 * X)


@in_child
def test_through_ctypes(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package, interface="ctypes", device="cuda:0", launch="graph")
    assert (model.native.device, model.native.target) == ("cuda:0", "cuda:sm_90")
    np.testing.assert_array_equal(model("chain", X), 120 * X)
    driver.context()
    stream = driver.stream()
    x = driver.array(X)
    y = model("chain", x, stream=stream)
    assert x.streams == [stream]
    assert y.__dlpack_device__() == (2, 0)
    z = model("chain", y)
    np.testing.assert_array_equal(y.numpy(), 120 * X)
    np.testing.assert_array_equal(z.numpy(), 14400 * X)
    np.testing.assert_array_equal(model("chain", model.native.to_device(X)).numpy(), 120 * X)
    assert model.native.kernels(1) == ["scale_a", "scale_b", "scale_c", "scale_d"]
    assert len(model.native.profile(1, [X], 2)) == 4
    assert model.native.memory(1, [x]) == (256, 256)
    a, b = model("pair", X, x)
    np.testing.assert_array_equal(a.numpy() + b.numpy(), 9 * X)
    model("lookup", driver.array(np.array([7], np.int64)))
    assert "index out of range" in refused(RunError, model.native.synchronize)
    assert "x: is not dense" in refused(InputError, lambda: model("affine", driver.array(X.reshape(4, 6).T)))
    assert "stream has to be" in refused(InputError, lambda: model("chain", x, stream="x"))
    del y, z, a, b
    driver.synchronize()
    assert driver.log == ""


@in_child
def test_through_the_loader(driver_path: Path, gpu_package: bytes) -> None:
    import mycc

    driver = Driver(driver_path)
    model = mycc.load(gpu_package, device="cuda", launch="direct")
    assert (model.device, model.target) == ("cuda:0", "cuda:sm_90")
    assert "for cuda:sm_90, cuda:0>" in repr(model)
    chain = model.entry("chain")
    x = model.to_device(X)
    assert x.shape == (24,)
    np.testing.assert_array_equal(chain(x)[0].numpy(), 120 * X)
    driver.context()
    stream = driver.stream()
    (y,) = chain(x, stream=stream)
    model.synchronize()
    np.testing.assert_array_equal(y.numpy(), 120 * X)
    np.testing.assert_array_equal(chain(X)[0], 120 * X)
    assert chain.kernels == ["scale_a", "scale_b", "scale_c", "scale_d"]
    assert "takes no stream" not in refused(InputError, lambda: chain(X, stream="x"))


@in_child
def test_weights_are_uploaded_once_and_given_back(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    before = driver.memory
    first = Loaded(gpu_package)
    copies, held = driver.count("cuMemcpyHtoDAsync_v2"), driver.memory
    second = Loaded(gpu_package)
    assert (driver.count("cuMemcpyHtoDAsync_v2"), driver.memory) == (copies, held)
    index = np.array([2, 0, 3], np.int64)
    np.testing.assert_array_equal(first("lookup", index), [4.0, 0.5, 8.0])
    del first
    np.testing.assert_array_equal(second("lookup", index), [4.0, 0.5, 8.0])
    del second
    assert driver.memory == before


@in_child
def test_outputs_give_their_memory_back_behind_their_readers(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path)
    model = Loaded(gpu_package)
    driver.context()
    stream = driver.stream()
    x = driver.array(np.arange(4096, dtype=np.float32))
    y = model("chain", x, stream=stream)
    before = driver.memory
    del y  # nothing has run yet
    assert driver.memory == before
    driver.synchronize(stream)
    for _ in range(3):
        y = model("chain", x)
        np.testing.assert_array_equal(y.numpy(), 120 * np.arange(4096, dtype=np.float32))
    assert driver.log == ""


@in_child
def test_out_of_memory_says_what_is_needed(driver_path: Path, gpu_package: bytes) -> None:
    driver = Driver(driver_path, memory=1 << 20)
    model = Loaded(gpu_package)
    large = np.zeros(1 << 20, np.float32)
    text = refused(RunError, lambda: model("chain", large))
    assert "out of memory on cuda:0 (NVIDIA Fake 90): 8388608 bytes are needed, " in text
    assert " of 1048576 are free" in text
    np.testing.assert_array_equal(model("chain", X), 120 * X)  # the process goes on
    driver.context()
    x = driver.array(X)
    driver.fail("cuMemAllocFromPoolAsync", 2)
    assert "96 bytes are needed" in refused(RunError, lambda: model("chain", x))
    np.testing.assert_array_equal(model("chain", x).numpy(), 120 * X)


@in_child
def test_run_and_bench(driver_path: Path, program: bytes, tmp_path: Path) -> None:
    from mycc.runtime.devices import DeviceRoof
    from mycc.runtime.execute import run_package
    from mycc.runtime.measure import bench_package
    from mycc.runtime.render import render_bench
    from rich.console import Console

    Driver(driver_path, memory=2 << 30)
    rows = [dict(row) for row in ENTRIES]
    for row in rows:
        work = {"flops": "2*n", "bytes": "8*n", "writes": "4*n", "weights": "0"}
        facts = {"grid": ["1"], "threads": 32, "shared": 0, "registers": 8, "spills": 0, "accesses": {}}
        kernels = [{**kernel, **work, **facts, "node": i} for i, kernel in enumerate(row["kernels"])]
        row["launches"] = {"cuda:sm_90": kernels}
    path = tmp_path / "fake.pkg"
    path.write_bytes(package(program, "sm_90", roof=100, entry_points=rows))
    result = run_package(path, entry="chain", sizes={"n": 8}, device="cuda:0")
    assert "chain on cuda:sm_90, cuda:0: " in result.text()
    np.testing.assert_allclose(result.outputs["y"], 120 * result.inputs["x"], rtol=1e-6)
    times = bench_package(path, sizes={"n": 1000}, runs=5, entry="chain", kernels=True)
    assert (times["target"], times["device"], times["runs"]) == ("cuda:sm_90", "cuda:0", 5)
    assert 0 < times["host_ms"] <= times["stream_ms"]
    assert [round(row["us"], 2) for row in times["kernels"]] == [2.0] * 4
    assert [round(row["gbytes"], 1) for row in times["kernels"]] == [4.0] * 4
    copies = DeviceRoof("fake", 100, times["roof"]["tbytes"])
    least = copies.seconds(0, 4000, 4000, 0, 0)
    assert [round(row["percent"], 3) for row in times["kernels"]] == [round(1e2 * least / 2e-6, 3)] * 4
    assert [round(row["lost"], 3) for row in times["kernels"]] == [round(max(0.0, 2 - 1e6 * least), 3)] * 4
    assert [row["count"] for row in times["sums"]] == [1] * 4
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render_bench(times))
    text = console.export_text()
    assert "in a row: " in text
    assert "roof of NVIDIA Fake 90 100 TFLOP/s (data sheet), " in text
    assert "TB/s" in text
