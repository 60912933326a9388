"""What torch.compile is given for this backend: mode=, and options={...}."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch

from ...runtime.errors import CompileError
from ..machine.targets import device_target
from ..options import CompileOptions, Mode

__all__ = ["Settings", "settings_of"]

#: torch.compile's words beside mycc's own, and what they mean here
_MODES: dict[str, Mode] = {**{mode: mode for mode in get_args(Mode)}, "max-autotune-no-cudagraphs": "max-autotune"}
#: of CompileOptions, and of this backend
_OWN = ("cache", "cache_dir", "jobs", "memory_budget", "strict", "threads")


@dataclass(frozen=True)
class Settings:
    """The options of one torch.compile.

    Attributes:
        compile: the options of each graph's compile; its targets are those of a CPU.
        strict: an operator that mycc does not take is an error.
        cache: compiled graphs are kept on disk, and found there.
        memory_budget: of what a forward graph keeps for the backward graph, from 0 to 1 (torch's own split: all that is
            no pointwise operation); less is computed again.
    """

    compile: CompileOptions
    strict: bool = False
    cache: bool = True
    memory_budget: float = 1.0

    def on(self, device: torch.device) -> CompileOptions:
        """The compile's options for a graph on a device."""
        if device.type == "cpu":
            return self.compile
        with torch.cuda.device(device):
            return replace(self.compile, targets=(device_target(),))


def settings_of(mode: str | None = None, options: Mapping[str, Any] | None = None) -> Settings:
    """The settings of `torch.compile(..., backend="mycc", mode=mode, options=options)`.

    options: {"schedule.fuse": False, ...} as `--set` takes them, and "strict", "cache" (True), "cache_dir", "jobs",
        "threads" (torch.get_num_threads()), "memory_budget" (1.0).

    Raises:
        CompileError: an option or a mode that is unknown, or a value that does not fit.
    """
    given = dict(options or {})
    chosen = _MODES.get(mode or "default")
    if chosen is None:
        raise CompileError(f"unknown mode '{mode}'", hint=f"Modes: {', '.join(_MODES)}.")
    own = {name: given.pop(name) for name in _OWN if name in given}
    for name in ("cache", "strict"):
        if not isinstance(own.get(name, False), bool):
            raise CompileError(f"option {name} is True or False, not {own[name]!r}")
    budget = own.get("memory_budget", 1.0)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 <= budget <= 1:
        raise CompileError(f"option memory_budget is a number from 0 to 1, not {budget!r}")
    threads = own.get("threads", torch.get_num_threads())
    compiled = CompileOptions.of(
        mode=chosen,
        options=given,
        threads=threads,
        jobs=own.get("jobs"),
        cache_dir=own.get("cache_dir"),
        verify=False,
    )
    return Settings(compiled, own.get("strict", False), own.get("cache", True), float(budget))
