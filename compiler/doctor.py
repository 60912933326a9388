"""`mycc doctor`: what this machine has of what mycc needs, and the command that installs what is missing.

Nothing heavy is imported: it tells of torch and Triton by their metadata, and works where they are missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..runtime.errors import Error
from ..runtime.inspect import megabytes
from ..runtime.installation import how_to_install
from ..runtime.text import counted
from .machine.local_cpu import available_cores, machine, withheld_flags
from .machine.targets import host_target

__all__ = ["Finding", "as_rows", "doctor", "doctor_text"]

#: what `mycc.compile` imports: distribution, the oldest that works, what for
COMPILER_PARTS = (
    ("torch", "2.11", "to capture models"),
    ("sympy", "", "for dynamic sizes"),
    ("jinja2", "", "for the templates of kernels"),
    ("safetensors", "", "to write weights"),
    ("ml_dtypes", "", "for bfloat16 in numpy"),
)
#: distribution, what for, and the extra of mycc that brings it
OPTIONAL_PARTS = (
    ("transformers", "for mycc compile DIR --task", "bench"),
    ("tokenizers", "for texts in and out of packages", "text"),
    ("onnxruntime", "peer of mycc bench", "bench"),
    ("openvino", "peer of mycc bench", "bench"),
)
_INSTALLERS = (
    ("apt-get", "sudo apt-get install g++"),
    ("dnf", "sudo dnf install gcc-c++"),
    ("pacman", "sudo pacman -S gcc"),
    ("zypper", "sudo zypper install gcc-c++"),
    ("apk", "sudo apk add g++"),
    ("conda", "conda install -c conda-forge gxx"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    state: "ok"; "missing", where `needed_for` does not work without it; "off", where something optional is not there.
    needed_for: "run", "compile", or what an optional thing is for. fix: the command or step that mends it.
    """

    name: str
    state: str
    text: str
    needed_for: str
    fix: str = ""


def doctor(cache_dir: Path | None = None) -> list[Finding]:
    """Looks at everything; never raises because something is missing."""
    return [
        *_python(),
        *_runtime(),
        *_compiler_parts(),
        _toolchain(cache_dir),
        _cache(cache_dir),
        *_gpu(),
        *_optional(),
    ]


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    right = sys.version_info >= (3, 11)
    yield Finding("python", "ok" if right else "missing", f"{version}, {sys.executable}", "run",
                  "" if right else "Make an environment with Python 3.11 or later.")  # fmt: skip
    system = f"{platform.system()} {platform.release()}, {machine()}, {available_cores()} cores"
    linux = platform.system() == "Linux"
    yield Finding("system", "ok" if linux else "missing", system, "run", "" if linux else "mycc needs Linux.")
    try:
        withheld = "; this kernel does not let a process use the CPU's AMX" if withheld_flags() else ""
        yield Finding("cpu level", "ok", host_target().name + withheld, "run")
    except Error as error:
        yield Finding("cpu level", "missing", error.message, "run", error.hint or "")


def _runtime() -> Iterator[Finding]:
    yield _distribution("numpy", "", "run", "to run packages", "pip install numpy")
    from ..runtime.native import open_library

    try:
        open_library()
        yield Finding("libmycc.so", "ok", "the loader of packages", "run")
    except (Error, OSError, ImportError) as error:
        yield Finding("libmycc.so", "missing", str(error).splitlines()[0], "run", "Install mycc again.")


def _compiler_parts() -> Iterator[Finding]:
    for name, oldest, what in COMPILER_PARTS:
        yield _distribution(name, oldest, "compile", what, how_to_install("compiler"))


def _distribution(name: str, oldest: str, needed_for: str, what: str, fix: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", f"not installed ({what})", needed_for, fix)
    if oldest and _numbers(version) < _numbers(oldest):
        return Finding(name, "missing", f"{version} is too old: {oldest} or later ({what})", needed_for, fix)
    return Finding(name, "ok", f"{version} ({what})", needed_for)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _toolchain(cache_dir: Path | None) -> Finding:
    from .build.cache import Cache
    from .build.toolchain import find_toolchain

    try:
        found = find_toolchain(machine(), Cache(cache_dir))
    except Error as error:
        command = next((text for program, text in _INSTALLERS if shutil.which(program)), "")
        return Finding("C++ compiler", "missing", error.message, "compile", command or error.hint or "")
    return Finding("C++ compiler", "ok", f"{found.label}, {shutil.which(found.command[0])}", "compile")


def _cache(cache_dir: Path | None) -> Finding:
    from .build.cache import info

    try:
        facts = info(cache_dir)
    except Error as error:
        return Finding("cache", "missing", error.message, "compile", error.hint or "Name another: --cache-dir DIR.")
    text = f"{facts.path}, {counted(facts.entries, 'object')}, {megabytes(facts.bytes)}"
    folder = next(p for p in (Path(facts.path), *Path(facts.path).parents) if p.exists())
    if not os.access(folder, os.W_OK):
        return Finding("cache", "missing", f"{text}: cannot be written", "compile", "Name another: --cache-dir DIR.")
    return Finding("cache", "ok", text, "compile")


def _gpu() -> Iterator[Finding]:
    triton = _distribution("triton", "3.6", "targets cuda", "compiles for NVIDIA GPUs", how_to_install("compiler"))
    yield triton if triton.state == "ok" else Finding("triton", "off", triton.text, triton.needed_for, triton.fix)
    from ..runtime.devices import cuda_devices, cuda_problem

    try:
        devices = cuda_devices()
        problem = "" if devices else cuda_problem()
    except (Error, OSError, ImportError) as error:
        devices, problem = (), str(error).splitlines()[0]
    if devices:
        names = ", ".join(f"cuda:{i} {d.name} (sm_{d.capability})" for i, d in enumerate(devices))
        yield Finding("GPU", "ok", names, "packages on a GPU")
    else:
        fix = "" if not shutil.which("nvidia-smi") else "nvidia-smi tells what the driver sees."
        yield Finding("GPU", "off", f"{problem}; compiling for GPUs works without one", "packages on a GPU", fix)


def _optional() -> Iterator[Finding]:
    for name, what, extra in OPTIONAL_PARTS:
        found = _distribution(name, "", what, what, how_to_install(extra))
        yield found if found.state == "ok" else Finding(name, "off", "not installed", what, found.fix)


def doctor_text(findings: list[Finding]) -> str:
    """The findings for a person: a line each, what mends it below, and what works in the last line."""
    marks = {"ok": "ok     ", "missing": "MISSING", "off": "-      "}
    width = max(len(f.name) for f in findings)
    lines = []
    for f in findings:
        lines.append(f"{marks[f.state]} {f.name:<{width}}  {f.text}")
        if f.fix and f.state == "missing":
            lines.append(f"{'':8}{'':{width}}  to mend: {f.fix}")
    for f in findings:
        if f.fix and f.state == "off":
            lines.append(f"for {f.needed_for} ({f.name}): {f.fix}")
    lacking = {f.needed_for for f in findings if f.state == "missing"}
    verdict = "mycc can compile and run packages here."
    if "run" in lacking:
        verdict = "mycc cannot run packages here."
    elif "compile" in lacking:
        verdict = "mycc can run packages here, not compile."
    return "\n".join([*lines, "", verdict])


def as_rows(findings: list[Finding]) -> list[dict[str, Any]]:
    """The findings as JSON values."""
    return [asdict(finding) for finding in findings]
