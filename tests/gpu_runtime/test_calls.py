"""Calls on a GPU: where tensors lie, streams, graphs, several callers, failures."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from mycc.runtime.errors import InputError, RunError

from .support import ENTRIES, Driver, Loaded, in_child, package, refused

X = np.arange(24, dtype=np.float32)


def values(output: Any) -> np.ndarray[Any, Any]:
    return output if isinstance(output, np.ndarray) else output.numpy()


# ---- where tensors lie


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


# ---- launches


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


# ---- streams and callers


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
    driver.c.cuStreamDestroy_v2(__import__("ctypes").c_void_p(first))
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

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


# ---- memory


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


# ---- failures


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
        try:
            text = refused(RunError, lambda: model("chain", X))
            os._exit(0 if "was forked from one that had opened the GPU" in text else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(model("chain", X), 120 * X)


# ---- commands


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
        kernels = [{**kernel, **work} for kernel in row["kernels"]]
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
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render_bench(times))
    text = console.export_text()
    assert "in a row: " in text
    assert "roof of NVIDIA Fake 90 100 TFLOP/s (data sheet), " in text
    assert "TB/s" in text
