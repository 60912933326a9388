"""The NVIDIA GPUs of this machine, as the driver describes them. No toolkit and no torch is needed to ask."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .native import open_library

__all__ = ["CudaDevice", "DeviceRoof", "cuda_devices", "cuda_problem", "measure_device_roof"]

_COPIED = 512 << 20  # bytes: far more than any cache of a GPU


@dataclass(frozen=True)
class CudaDevice:
    """A device. capability: 90 is compute capability 9.0; shared_bytes: what a block may have; memory: bytes."""

    name: str
    capability: int
    multiprocessors: int
    l2_bytes: int
    shared_bytes: int
    memory: int


def cuda_devices() -> tuple[CudaDevice, ...]:
    """All devices in the driver's order: the first is cuda:0. Empty where there is none; `cuda_problem` says why."""
    rows = open_library().cuda_devices()
    return tuple(CudaDevice(name, 10 * major + minor, *rest) for name, major, minor, *rest in rows)


def cuda_problem() -> str:
    """Why there is no device: "no NVIDIA driver (libcuda.so.1) is installed" and the like; empty when there is one."""
    return str(open_library().cuda_problem)


@dataclass(frozen=True)
class DeviceRoof:
    """What a device can do at most: tflops of dense 16-bit products by its data sheet, tbytes a second measured by
    copies within its memory (a copied byte counts twice)."""

    device: str
    tflops: float
    tbytes: float

    @property
    def gflops(self) -> float:
        return 1e3 * self.tflops

    def seconds(self, flops: float, read: float, written: float, weights: float, all_weights: float) -> float:
        """The least time of a kernel: that of its arithmetic or that of its bytes, whichever is longer."""
        return max(flops / self.tflops, (read + written + weights) / self.tbytes) / 1e12

    def as_dict(self) -> dict[str, float | str]:
        return asdict(self)


def measure_device_roof(number: int, tflops: float) -> DeviceRoof:
    """Measures the memory of device `number`. Raises RunError where it has no room for that."""
    speed = open_library().cuda_copy_speed(number, _COPIED)
    return DeviceRoof(cuda_devices()[number].name, tflops, speed / 1e12)
