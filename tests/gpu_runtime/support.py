"""A GPU that is not there: the fake driver, packages whose kernels it knows, and arrays in its memory."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from mycc.runtime import _binding
from mycc.runtime.dlpack import DataType, ManagedTensor, _capsule_new, _Destructor
from mycc.runtime.errors import InputError, LoadError, RunError

from ..runtime.packages import ISA, ROOT, Draft, entry, symbol

HERE = Path(__file__).parent
SECONDS = 200  #: that a test in a process of its own may take; then a signal ends it
LIBRARY = Path(_binding.__file__).with_name("libmycc.so")
IMAGE = b"fake sm_90 scale scale_dependent add gather count mapped crash scale_large keep below\0"
X = np.arange(24, dtype=np.float32)
N = [symbol("n", 0, 1 << 20)]
ENTRIES = [
    entry("affine", [("x", "f32", ["batch", 4])], [("y", "f32", ["batch", 4])], [symbol("batch", 0, 64)]),
    entry("chain", [("x", "f32", ["n"])], [("y", "f32", ["n"])], N, kernels=4),
    entry("lookup", [("indices", "i64", ["n"])], [("y", "f32", ["n"])], N),
    entry("counted", [("x", "f32", ["n"])], [("y", "f32", ["n"])], N, kernels=2),
    entry("mapped", [("x", "f32", [4, 8])], [("y", "f32", [4, 8])], []),
    entry("pair", [("a", "f32", ["n"]), ("b", "f32", ["n"])], [("y", "f32", ["n"]), ("z", "f32", ["n"])], N, kernels=3),
    entry("crash", [("x", "f32", ["n"])], [("y", "f32", ["n"])], N, kernels=2),
    entry("odd", [("x", "f32", ["n"])], [("y", "f32", ["n"])], N),
    entry("wide", [("x", "f32", ["n"])], [("y", "f32", ["n"])], N),
    entry("total", [("x", "f32", [4])], [("y", "f32", [4])], [], kernels=2) | {"state": [0], "changes": [0]},
    entry("bump", [("x", "f32", ["n"]), ("b", "f32", ["n"])], [("y", "f32", ["n"])], N, kernels=2) | {"writes": [0]},
    entry("kept", [("x", "f32", ["n"])], [("y", "f32", ["u0"]), ("z", "f32", ["n"])], N, kernels=5),
    entry("growing", [("x", "f32", [1]), ("i", "i64", [1])], [("y", "f32", [1])], [], kernels=5),
]
STATE = [{"name": "total", "dtype": "f32", "shape": [4]}]
NAMES = {row["name"]: index for index, row in enumerate(ENTRIES)}
F = TypeVar("F", bound=Callable[..., None])


def compile_program(out: Path, shared: int = 100 << 10, image_bytes: int = len(IMAGE), cpu: bool = False) -> bytes:
    """model.so of gpu_program.c; cpu: as it is for a CPU."""
    options = ["-std=c11", "-O1", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{ROOT}/runtime/include"]
    sizes = [f"-DSHARED_BYTES={shared}", f"-DIMAGE_BYTES={image_bytes}", *(["-DCPU_ALONE"] if cpu else [])]
    subprocess.run(["gcc", *options, *sizes, str(HERE / "gpu_program.c"), "-o", str(out)], check=True)
    return out.read_bytes()


def build_driver(out: Path) -> Path:
    """libcuda.so.1 of fake_driver.cpp."""
    options = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    include = [f"-I{ROOT}/runtime", f"-I{ROOT}/runtime/include"]
    subprocess.run(["g++", *options, *include, str(HERE / "fake_driver.cpp"), "-o", str(out)], check=True)
    return out


def package(
    program: bytes, *chips: str, cpu: bytes | None = None, image: bytes = IMAGE, roof: int = 0, **changes: Any
) -> bytes:
    """A package with code for these chips ("sm_90", "ptx"), and for this CPU when there is a program for it.

    roof: TFLOP/s that the manifest says of the chips.
    """
    rows, members = [], {}
    for chip in chips:
        folder = f"lib/cuda-{chip}"
        members |= {
            f"{folder}/model.so": program,
            f"{folder}/kernels.bin": image.replace(b"sm_90", chip.encode().ljust(5)),
        }
        names = {"library": f"{folder}/model.so", "images": f"{folder}/kernels.bin", "loader": "", "glibc": "2.17"}
        rows.append(
            {"target": f"cuda:{chip}", "family": "cuda", "isa": f"cuda-{chip}", "arch": os.uname().machine, **names}
        )
        if roof:
            rows[-1]["roof"] = {"sms": 132, "tflops": roof, "tbytes": 1}
    if cpu is not None:
        members[f"lib/{ISA}/model.so"] = cpu
        names = {"library": f"lib/{ISA}/model.so", "loader": "", "glibc": "2.17"}
        rows.append({"target": f"cpu:{ISA}", "family": "cpu", "isa": ISA, **names})
    return Draft(
        b"", isas=[], changes={"targets": rows, "entry_points": ENTRIES, "state": STATE} | changes, extra=members
    ).build()


# ---- processes of their own: a driver is opened once


def in_child(function: F) -> F:
    """Runs a test in a forked child, so that every test has a driver of its own."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            signal.alarm(SECONDS)
            text = b""
            try:
                function(*args, **kwargs)
            except BaseException:
                text = traceback.format_exc().encode()
            try:
                while text:
                    text = text[os.write(write, text) :]
            finally:
                os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:
            text = pipe.read().decode()
        _, status = os.waitpid(child, 0)
        if text:
            pytest.fail(text, pytrace=False)
        assert status == 0, f"the process ended with {status}"

    return run  # type: ignore[return-value]


class Driver:
    """The fake driver in this process."""

    def __init__(self, path: Path, chips: tuple[int, ...] = (90,), **settings: int) -> None:
        self.c = ctypes.CDLL(str(path))
        self.c.fake_set_chips((ctypes.c_int * len(chips))(*chips), len(chips))
        for name, value in settings.items():
            getattr(self.c, f"fake_set_{name}")(ctypes.c_size_t(value))
        self.c.fake_count.restype = self.c.fake_pending.restype = ctypes.c_uint64
        self.c.fake_memory_used.restype = ctypes.c_size_t
        self.c.fake_log.restype = ctypes.c_char_p

    def count(self, symbol: str) -> int:
        return int(self.c.fake_count(symbol.encode()))

    def fail(self, symbol: str, code: int, after: int = 0) -> None:
        """The call after `after` more of this function returns the code."""
        self.c.fake_fail(symbol.encode(), after, code)

    @property
    def memory(self) -> int:
        return int(self.c.fake_memory_used())

    @property
    def pending(self) -> int:
        """Pieces of work that wait in streams."""
        return int(self.c.fake_pending())

    @property
    def log(self) -> str:
        return str(self.c.fake_log().decode())

    def context(self, device: int = 0) -> None:
        """Makes a device's context current, as torch would."""
        context = ctypes.c_void_p()
        assert self.c.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        assert self.c.cuCtxPushCurrent_v2(context) == 0

    def stream(self, blocking: bool = False) -> int:
        handle = ctypes.c_void_p()
        assert self.c.cuStreamCreate(ctypes.byref(handle), 0 if blocking else 1) == 0
        return handle.value or 0

    def synchronize(self, stream: int | None = None) -> None:
        assert self.c.cuStreamSynchronize(ctypes.c_void_p(stream)) == 0

    def array(self, values: np.ndarray[Any, Any], device: int = 0, offset: int = 0) -> DeviceArray:
        return DeviceArray(self, values, device, offset)


class DeviceArray:
    """An array of the fake device: the values lie `offset` bytes behind the start of an allocation."""

    def __init__(self, driver: Driver, values: np.ndarray[Any, Any], device: int = 0, offset: int = 0) -> None:
        address = ctypes.c_ulonglong()
        values = np.asarray(values)
        assert driver.c.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(values.nbytes + offset)) == 0
        self.driver, self.base = driver, address.value
        self.address, self.device = address.value + offset, device
        self.shape, self.dtype, self.strides = (
            values.shape,
            values.dtype,
            [s // values.itemsize for s in values.strides],
        )
        ctypes.memmove(self.address, np.ascontiguousarray(values).ctypes.data, values.nbytes)
        self.streams: list[Any] = []  # that consumers named

    def free(self) -> None:
        assert self.driver.c.cuMemFree_v2(ctypes.c_ulonglong(self.base)) == 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __dlpack__(self, stream: Any = None, **_: Any) -> Any:
        self.streams.append(stream)
        rank = len(self.shape)
        self._shape = (ctypes.c_int64 * max(rank, 1))(*self.shape)
        self._strides = (ctypes.c_int64 * max(rank, 1))(*self.strides)
        managed = self._managed = ManagedTensor()
        tensor = managed.tensor
        tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = self.address, 2, self.device, rank
        code = {"i": 0, "u": 1, "f": 2, "b": 6}[self.dtype.kind]
        tensor.dtype = DataType(code, 8 * self.dtype.itemsize, 1)
        tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))
        return _capsule_new(ctypes.addressof(managed), b"dltensor", _nothing)


@_Destructor
def _nothing(capsule: int) -> None:
    """The array owns its memory."""


class Loaded:
    """A model whose entry points are called by name; one output comes alone."""

    def __init__(self, data: bytes | Path, interface: str = "pybind11", **options: Any) -> None:
        if interface == "pybind11":
            _binding.set_errors(LoadError, InputError, RunError)
            library: Any = _binding.Library(str(LIBRARY))
        else:
            from mycc.runtime.capi import Library

            library = Library(str(LIBRARY))
        load = library.load_memory if isinstance(data, bytes) else library.load_file
        self.native = load(data if isinstance(data, bytes) else str(data), **options)

    def __call__(self, name: str, *tensors: Any, stream: Any = None) -> Any:
        outputs = self.native.run(NAMES[name], tensors, stream)
        return outputs[0] if len(outputs) == 1 else outputs


def refused(error: type[Exception], action: Callable[[], Any]) -> str:
    """The text of the error that the action raises."""
    with pytest.raises(error) as caught:
        action()
    return str(caught.value)


__all__ = [
    "ENTRIES",
    "IMAGE",
    "NAMES",
    "DeviceArray",
    "Driver",
    "Loaded",
    "X",
    "build_driver",
    "compile_program",
    "in_child",
    "package",
    "refused",
]  # fmt: skip
