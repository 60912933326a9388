"""Which code of a package is loaded, and what is said when there is none for this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from mycc.runtime.errors import LoadError

from ..runtime.packages import ISA
from .support import IMAGE, Driver, Loaded, compile_program, in_child, package, refused

X = np.arange(8, dtype=np.float32)


@in_child
def test_the_device_is_chosen_when_the_package_has_code_for_it(
    driver_path: Path, program: bytes, cpu_program: bytes
) -> None:
    Driver(driver_path)
    model = Loaded(package(program, "sm_80", "sm_90", "ptx", cpu=cpu_program))
    assert (model.native.target, model.native.device) == ("cuda:sm_90", "cuda:0")
    assert Loaded(package(program, "sm_90", cpu=cpu_program), device="cpu").native.device == "cpu"
    assert Loaded(package(program, "sm_90", cpu=cpu_program), target=f"cpu:{ISA}").native.target == f"cpu:{ISA}"
    assert Loaded(package(program, "sm_90", "ptx"), target="cuda:ptx").native.target == "cuda:ptx"


@in_child
def test_the_second_device(driver_path: Path, program: bytes) -> None:
    driver = Driver(driver_path, (86, 90))
    assert Loaded(package(program, "sm_90")).native.device == "cuda:1"
    model = Loaded(package(program, "sm_80", "sm_90"), device="cuda:1")
    assert (model.native.target, model.native.device) == ("cuda:sm_90", "cuda:1")
    np.testing.assert_array_equal(model("chain", X), 120 * X)
    driver.context(1)
    y = model("chain", driver.array(X, device=1))
    assert y.__dlpack_device__() == (2, 1)
    np.testing.assert_array_equal(y.numpy(), 120 * X)


@pytest.mark.parametrize(
    ("chip", "built", "chosen"),
    [
        (80, ("sm_80", "ptx"), "sm_80"),
        (89, ("sm_80", "sm_86", "ptx"), "sm_86"),  # the nearest of the same family
        (90, ("sm_80", "ptx"), "ptx"),  # binary code of another family does not run
        (103, ("sm_100", "ptx"), "ptx"),  # sm_100a runs on that chip alone
        (120, ("ptx",), "ptx"),
    ],
)
@in_child
def test_which_code_runs_on_which_chip(
    driver_path: Path, program: bytes, chip: int, built: tuple[str, ...], chosen: str
) -> None:
    driver = Driver(driver_path, (chip,))
    driver.fail("cuModuleLoadData", 999)  # the fake knows only code of its very chip: the choice is what counts
    text = refused(LoadError, lambda: Loaded(package(program, *built)))
    assert f"sm_{chip}" in text
    assert "kernel scale cannot be loaded" in text
    image = IMAGE.replace(b"sm_90", b"ptx  ")
    model = Loaded(package(program, *built, image=image))
    assert model.native.target == f"cuda:{chosen}"


@in_child
def test_no_driver(no_driver: None, program: bytes, cpu_program: bytes) -> None:
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90", "sm_100")))
    assert "has no code for this machine's GPUs; it holds cuda:sm_90, cuda:sm_100" in text
    assert "no NVIDIA driver (libcuda.so.1) is installed" in text
    assert Loaded(package(program, "sm_90", cpu=cpu_program)).native.device == "cpu"
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90", cpu=cpu_program), device="cuda"))
    assert "no NVIDIA driver (libcuda.so.1) is installed" in text


@in_child
def test_a_forked_child_looks_for_a_driver_again(driver_path: Path, program: bytes) -> None:
    data = package(program, "sm_90")
    assert "no NVIDIA driver" in refused(LoadError, lambda: Loaded(data))
    Driver(driver_path)
    in_child(lambda: np.testing.assert_array_equal(Loaded(data)("chain", X), 120 * X))()


@in_child
def test_an_old_driver(driver_path: Path, program: bytes) -> None:
    Driver(driver_path, version=11040)
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90")))
    assert "the NVIDIA driver is too old: it has CUDA 11.4, and 12.0 (driver 525) is the least" in text


@in_child
def test_no_device(driver_path: Path, program: bytes) -> None:
    Driver(driver_path, ())
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90")))
    assert "this machine has an NVIDIA driver but no device" in text


@in_child
def test_a_driver_that_does_not_start(driver_path: Path, program: bytes) -> None:
    Driver(driver_path).fail("cuInit", 999)
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90")))
    assert "the NVIDIA driver does not start: CUDA_ERROR_UNKNOWN" in text


@in_child
def test_no_code_for_the_chip(driver_path: Path, program: bytes, cpu_program: bytes) -> None:
    Driver(driver_path, (90,))
    text = refused(LoadError, lambda: Loaded(package(program, "sm_80", "sm_100")))
    assert "it holds cuda:sm_80, cuda:sm_100, and cuda:0 is an NVIDIA Fake 90 (sm_90)" in text
    assert "--target cuda:sm_90" in text
    text = refused(LoadError, lambda: Loaded(package(program, "sm_80"), device="cuda:3"))
    assert "there is no cuda:3; this machine has 1 device" in text
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90"), device="gpu"))
    assert "device has to be cpu, cuda or cuda:<number>, not gpu" in text
    text = refused(LoadError, lambda: Loaded(package(program, cpu=cpu_program), device="cuda"))
    assert "has no code for a GPU" in text
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90"), launch="fast"))
    assert "launch has to be auto, direct, graph or debug, not fast" in text


@in_child
def test_a_kernel_that_wants_too_much_shared_memory(driver_path: Path, tmp_path: Path) -> None:
    Driver(driver_path)
    greedy = compile_program(tmp_path / "model.so", shared=300 << 10)
    text = refused(LoadError, lambda: Loaded(package(greedy, "sm_90")))
    assert "kernel scale_large needs 307200 bytes of shared memory, cuda:0 (NVIDIA Fake 90) has 204800" in text


@in_child
def test_damaged_kernels(driver_path: Path, program: bytes, tmp_path: Path) -> None:
    driver = Driver(driver_path)
    before = driver.memory
    text = refused(LoadError, lambda: Loaded(package(program, "sm_90", image=IMAGE.replace(b"gather", b"father"))))
    assert "kernel gather is not in its image: CUDA_ERROR_NOT_FOUND" in text
    outside = compile_program(tmp_path / "model.so", image_bytes=1 << 20)
    assert "a kernel's row makes no sense" in refused(LoadError, lambda: Loaded(package(outside, "sm_90")))
    assert driver.memory == before


@in_child
def test_a_driver_that_is_older_than_the_ptx(driver_path: Path, program: bytes) -> None:
    Driver(driver_path, (120,)).fail("cuModuleLoadData", 222)
    text = refused(LoadError, lambda: Loaded(package(program, "ptx")))
    assert "kernel scale cannot be loaded on cuda:0 (NVIDIA Fake, sm_120)" in text
    assert "The driver is older than this PTX" in text


@in_child
def test_weights_that_do_not_fit(driver_path: Path, program: bytes) -> None:
    Driver(driver_path, memory=100)
    from mycc.runtime.errors import RunError

    text = refused(RunError, lambda: Loaded(package(program, "sm_90")))
    assert "out of memory on cuda:0 (NVIDIA Fake 90): 64 bytes are needed, 100 of 100 are free" in text


def test_a_package_for_the_cpu_opens_no_driver(driver_path: Path, program: bytes, cpu_program: bytes) -> None:
    @in_child
    def load() -> None:
        driver = Driver(driver_path)
        Loaded(package(program, cpu=cpu_program))
        assert driver.count("cuInit") == 0

    load()


#: ours in cuda_types.h, theirs in cuda.h
TYPES = (
    ("LaunchConfig", "CUlaunchConfig"),
    ("LaunchAttribute", "CUlaunchAttribute"),
    ("KernelNode", "CUDA_KERNEL_NODE_PARAMS"),
    ("GraphEdge", "CUgraphEdgeData"),
    ("PoolProperties", "CUmemPoolProps"),
)
PLACES = (
    ("LaunchConfig, block", "CUlaunchConfig, blockDimX"),
    ("LaunchConfig, stream", "CUlaunchConfig, hStream"),
    ("LaunchConfig, n_attributes", "CUlaunchConfig, numAttrs"),
    ("LaunchAttribute, value", "CUlaunchAttribute, value"),
    ("KernelNode, shared", "CUDA_KERNEL_NODE_PARAMS, sharedMemBytes"),
    ("KernelNode, params", "CUDA_KERNEL_NODE_PARAMS, kernelParams"),
    ("GraphEdge, type", "CUgraphEdgeData, type"),
    ("PoolProperties, location", "CUmemPoolProps, location.id"),
    ("PoolProperties, max_size", "CUmemPoolProps, maxSize"),
)
VALUES = (
    ("kAttributeDependent", "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"),
    ("kEdgeDependent", "CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC"),
    ("kPortDependent", "CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC"),
    ("kMultiprocessors", "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"),
    ("kL2Bytes", "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE"),
    ("kMajor", "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR"),
    ("kMinor", "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR"),
    ("kSharedPerBlock", "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    ("kMemoryPools", "CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED"),
    ("kFunctionDynamicShared", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"),
    ("kCachePreferShared", "CU_FUNC_CACHE_PREFER_SHARED"),
    ("kPoolReleaseThreshold", "CU_MEMPOOL_ATTR_RELEASE_THRESHOLD"),
    ("kOutOfMemory", "CUDA_ERROR_OUT_OF_MEMORY"),
    ("kNotReady", "CUDA_ERROR_NOT_READY"),
    ("kNoDevice", "CUDA_ERROR_NO_DEVICE"),
    ("kFirstSticky", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("kStreamNonBlocking", "CU_STREAM_NON_BLOCKING"),
    ("kEventNoTiming", "CU_EVENT_DISABLE_TIMING"),
    ("kHostMapped", "CU_MEMHOSTALLOC_DEVICEMAP"),
)


def test_layouts_are_those_of_the_driver(tmp_path: Path) -> None:
    """cuda_types.h against cuda.h, where Triton has brought one."""
    triton = pytest.importorskip("triton")
    header = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    if not (header / "cuda.h").exists():
        pytest.skip("Triton has no cuda.h")
    text = '#include <cuda.h>\n#include <cstddef>\n#include "src/gpu/cuda_types.h"\nnamespace m = mycc::cuda;\n'
    text += "".join(f"static_assert(sizeof(m::{a}) == sizeof({b}));\n" for a, b in TYPES)
    text += "".join(f"static_assert(offsetof(m::{a}) == offsetof({b}));\n" for a, b in PLACES)
    text += "".join(f"static_assert(int(m::{a}) == int({b}));\n" for a, b in VALUES)
    source = tmp_path / "layouts.cpp"
    source.write_text(text)
    root = Path(__file__).parents[2]
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{header}", f"-I{root}/runtime", f"-I{root}/runtime/include"]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
