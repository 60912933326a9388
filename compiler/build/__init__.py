"""Build: generated C++ sources to the library of a target. Never imports torch."""

from __future__ import annotations

from ..machine.targets import TARGETS, Target, host_target, parse_targets
from .cache import Cache, CacheInfo
from .compile import BuildOptions, BuildResult, build

__all__ = [
    "TARGETS", "BuildOptions", "BuildResult", "Cache", "CacheInfo", "Target", "build", "host_target", "parse_targets",
]  # fmt: skip
