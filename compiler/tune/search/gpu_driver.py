"""The NVIDIA driver as the tuner uses it, by ctypes: memory, kernels, and graphs of launches that are timed.

The runtime launches packages by itself (runtime/src/gpu/gpu_launches.cpp); graphs here have the same nodes and edges.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from ....runtime.errors import CompileError

__all__ = ["Gpu", "Graph", "GraphLaunch", "Kernel"]

DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MAJOR, MINOR = 75, 76  # of the compute capability
DEPENDENT_PORT = DEPENDENT_EDGE = 1


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2"""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("params", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


class _Edge(ctypes.Structure):
    """CUgraphEdgeData"""

    _fields_ = (("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("reserved", c_char * 5))


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel. threads: of a block; shared: bytes of dynamic shared memory."""

    function: int
    threads: int
    shared: int
    dependent: bool


@dataclass(frozen=True)
class GraphLaunch:
    """A launch with its arguments, each the bytes of a parameter."""

    kernel: Kernel
    grid: tuple[int, int, int]
    args: tuple[bytes, ...]


class Gpu:
    """The first GPU. Raises CompileError when there is no driver or no device; close() frees all memory."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CompileError(f"cannot tune for a GPU: there is no NVIDIA driver here ({error})") from None
        self._memory: list[int] = []
        self._modules: list[c_void_p] = []
        self.call("cuInit", 0)
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        if not count.value:
            raise CompileError("cannot tune for a GPU: the NVIDIA driver knows none")
        self._device = c_int()
        self.call("cuDeviceGet", byref(self._device), 0)
        self._context, self.stream = c_void_p(), c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
        self.call("cuCtxPushCurrent_v2", self._context)
        self.call("cuStreamCreate", byref(self.stream), 1)

    def call(self, name: str, *args: Any) -> None:
        """Calls the driver; an error becomes a CompileError that names the function."""
        code = getattr(self._library, name)(*args)
        if code:
            text = c_char_p()
            self._library.cuGetErrorString(code, byref(text))
            said = text.value.decode() if text.value else f"error {code}"
            raise CompileError(f"cannot tune for a GPU: {name}: {said}")

    @property
    def capability(self) -> int:
        major, minor = c_int(), c_int()
        self.call("cuDeviceGetAttribute", byref(major), MAJOR, self._device)
        self.call("cuDeviceGetAttribute", byref(minor), MINOR, self._device)
        return major.value * 10 + minor.value

    @property
    def name(self) -> str:
        text = ctypes.create_string_buffer(96)
        self.call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode()

    def allocate(self, size: int) -> int:
        """The address of `size` bytes of zeros."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(max(size, 16)))
        self._memory.append(address.value)
        self.call("cuMemsetD8Async", address, c_ubyte(0), c_size_t(max(size, 16)), self.stream)
        return address.value

    def write(self, address: int, data: bytes) -> None:
        self.call("cuMemcpyHtoDAsync_v2", c_uint64(address), data, c_size_t(len(data)), self.stream)
        self.synchronize()

    def read(self, address: int, size: int) -> bytearray:
        data = bytearray(size)
        place = (c_char * size).from_buffer(data)
        self.call("cuMemcpyDtoHAsync_v2", place, c_uint64(address), c_size_t(size), self.stream)
        self.synchronize()
        return data

    def load(self, symbol: str, image: bytes, threads: int, shared: int, dependent: bool) -> Kernel:
        """A kernel from its image."""
        module, function = c_void_p(), c_void_p()
        self.call("cuModuleLoadData", byref(module), image)
        self._modules.append(module)
        self.call("cuModuleGetFunction", byref(function), module, symbol.encode())
        if shared > 48 << 10:
            self.call("cuFuncSetAttribute", function, DYNAMIC_SHARED, shared)
        assert function.value is not None
        return Kernel(function.value, threads, shared, dependent)

    def synchronize(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def close(self) -> None:
        """Gives everything back; what a failed kernel left behind cannot be freed and is left."""
        for module in self._modules:
            self._library.cuModuleUnload(module)
        for address in self._memory:
            self._library.cuMemFree_v2(c_uint64(address))
        self._library.cuStreamDestroy_v2(self.stream)
        self._library.cuCtxPopCurrent_v2(byref(c_void_p()))
        self._library.cuDevicePrimaryCtxRelease_v2(self._device)


class Graph:
    """Launches in order, each dependent on the one before, as an executable graph."""

    def __init__(self, gpu: Gpu, launches: Sequence[GraphLaunch]) -> None:
        self._gpu = gpu
        graph, self._run = c_void_p(), c_void_p()
        gpu.call("cuGraphCreate", byref(graph), 0)
        typed = hasattr(gpu._library, "cuGraphAddDependencies_v2")
        before: c_void_p | None = None
        for launch in launches:
            node = c_void_p()
            held = [ctypes.create_string_buffer(arg, len(arg)) for arg in launch.args]
            params = (c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
            kernel = launch.kernel
            made = _KernelNode(
                kernel.function, launch.grid, (kernel.threads, 1, 1), kernel.shared, ctypes.addressof(params)
            )
            gpu.call("cuGraphAddKernelNode_v2", byref(node), graph, None, c_size_t(0), byref(made))
            if before is not None and kernel.dependent and typed:
                edge = _Edge(DEPENDENT_PORT, 0, DEPENDENT_EDGE)
                one = byref(before), byref(node), byref(edge), c_size_t(1)
                gpu.call("cuGraphAddDependencies_v2", graph, *one)
            elif before is not None:
                gpu.call("cuGraphAddDependencies", graph, byref(before), byref(node), c_size_t(1))
            before = node
        gpu.call("cuGraphInstantiateWithFlags", byref(self._run), graph, ctypes.c_ulonglong(0))
        gpu.call("cuGraphDestroy", graph)
        self._begin, self._end = c_void_p(), c_void_p()
        for event in (self._begin, self._end):
            gpu.call("cuEventCreate", byref(event), 0)

    def time(self, runs: int) -> float:
        """Microseconds of one of so many runs, one behind the other."""
        gpu, elapsed = self._gpu, c_float()
        gpu.call("cuEventRecord", self._begin, gpu.stream)
        for _ in range(runs):
            gpu.call("cuGraphLaunch", self._run, gpu.stream)
        gpu.call("cuEventRecord", self._end, gpu.stream)
        gpu.synchronize()
        gpu.call("cuEventElapsedTime", byref(elapsed), self._begin, self._end)
        return elapsed.value * 1e3 / runs

    def close(self) -> None:
        self._gpu.call("cuGraphExecDestroy", self._run)
        for event in (self._begin, self._end):
            self._gpu.call("cuEventDestroy_v2", event)
