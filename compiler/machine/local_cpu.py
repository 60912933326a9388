"""What the build asks of Linux itself: the CPU's instruction sets and the cores that this process may use."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

__all__ = ["available_cores", "cpu_flags", "machine", "withheld_flags"]

_CPU_INFO = Path("/proc/cpuinfo")
#: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Documentation/arch/x86/xstate.rst of Linux
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_AMX = frozenset({"amx_tile", "amx_int8", "amx_bf16"})
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def machine() -> str:
    """The architecture's name: "x86_64", "aarch64"."""
    return os.uname().machine


def cpu_flags(cpu_info: Path = _CPU_INFO) -> frozenset[str]:
    """The features of the first CPU, as the kernel calls them; empty when the kernel does not say.

    Those of AMX are left out where the kernel does not let this process use its tiles.
    """
    return _told_flags(cpu_info) - withheld_flags(cpu_info)


def withheld_flags(cpu_info: Path = _CPU_INFO) -> frozenset[str]:
    """Features of the CPU that the kernel does not let this process use."""
    tiles = _AMX & _told_flags(cpu_info)
    return tiles if tiles and not _may_use_tiles() else frozenset()


def _told_flags(cpu_info: Path) -> frozenset[str]:
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _may_use_tiles() -> bool:
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def available_cores(quota: Path = _CGROUP_QUOTA) -> int:
    """Cores that this process may use: its affinity mask, cut by the container's CPU quota; at least 1."""
    cores = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text().split()
        return max(1, min(cores, round(int(limit) / int(period))))
    except (OSError, ValueError):  # no control group of version 2, or its limit is "max"
        return cores
