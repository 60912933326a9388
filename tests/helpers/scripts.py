"""Python files outside of packages, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["load_script"]


def load_script(path: Path, name: str = "") -> ModuleType:
    """The module of a file. name: under which sys.modules has it from now on; none: it stays out of it.

    The text is compiled anew: Python takes its stored bytecode for that of a file that was changed within one second
    and kept its size.
    """
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    if name:
        sys.modules[name] = module
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module
