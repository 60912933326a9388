"""The NVIDIA GPUs of this machine, as the driver describes them. No toolkit and no torch is needed to ask."""

from __future__ import annotations

from dataclasses import dataclass

from .native import open_library

__all__ = ["CudaDevice", "cuda_devices", "cuda_problem"]


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
