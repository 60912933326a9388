"""`mycc doctor`, and the cache of compiled objects: `mycc cache info` and `clear`."""

from __future__ import annotations

import typer

from ..runtime.text import counted
from .arguments import CacheDir, Json
from .console import print_json

__all__ = ["cache_clear_command", "cache_info_command", "doctor_command"]


def doctor_command(cache_dir: CacheDir = None, as_json: Json = False) -> None:
    """Say what this machine has of what mycc needs, and how to install the rest. Exit code 1: something is missing."""
    from ..compiler.doctor import as_rows, doctor, doctor_text

    findings = doctor(cache_dir)
    if as_json:
        print_json({"findings": as_rows(findings)}, "doctor/1")
    else:
        print(doctor_text(findings))
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def cache_info_command(cache_dir: CacheDir = None, as_json: Json = False) -> None:
    """Show where the cache is, what it holds and its size."""
    from ..compiler.build.cache import info
    from ..runtime.inspect import megabytes

    facts = info(cache_dir)
    if as_json:
        print_json({"path": facts.path, "entries": facts.entries, "bytes": facts.bytes}, "cache/1")
    else:
        print(f"{facts.path}: {counted(facts.entries, 'object')}, {megabytes(facts.bytes)}")


def cache_clear_command(cache_dir: CacheDir = None, as_json: Json = False) -> None:
    """Remove everything from the cache."""
    from ..compiler.build.cache import clear

    removed = clear(cache_dir)
    if as_json:
        print_json({"removed": removed}, "cache/1")
    else:
        print(f"removed {counted(removed, 'object')}")
