"""What the build asks of Linux itself: the CPU's instruction sets and the cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available_cores", "cpu_flags", "machine"]

_CPU_INFO = Path("/proc/cpuinfo")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def machine() -> str:
    """The architecture's name: "x86_64", "aarch64"."""
    return os.uname().machine


def cpu_flags(cpu_info: Path = _CPU_INFO) -> frozenset[str]:
    """The features of the first CPU, as the kernel calls them; empty when the kernel does not say."""
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def available_cores(quota: Path = _CGROUP_QUOTA) -> int:
    """Cores that this process may use: its affinity mask, cut by the container's CPU quota; at least 1."""
    cores = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text().split()
        return max(1, min(cores, round(int(limit) / int(period))))
    except (OSError, ValueError):  # no control group of version 2, or its limit is "max"
        return cores
