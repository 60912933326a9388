"""The example programs in C, built against the runtime of this mycc."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mycc.runtime import _binding

__all__ = ["build_example"]

ROOT = Path(__file__).parents[2]


def build_example(name: str, folder: Path) -> Path:
    """examples/c/NAME.c as a program in the folder."""
    library, program = Path(_binding.__file__).with_name("libmycc.so"), folder / name
    source, includes = ROOT / "examples" / "c" / f"{name}.c", f"-I{ROOT / 'runtime' / 'include'}"
    command = ["cc", "-std=c11", "-Wall", "-Werror", includes, source, "-o", program, library]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}"], check=True)
    return program
