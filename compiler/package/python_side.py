"""The Python members of a package: the runtime's own files, copied, so that there is one source of truth."""

from __future__ import annotations

import keyword
import marshal
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from pathlib import Path
from types import CodeType

from ... import runtime
from ...runtime.native import LIBRARY, wrapper_tag

__all__ = ["import_name", "installed_loader", "installed_wrappers", "python_members"]

_RUNTIME = Path(runtime.__file__).parent
_COPIED = (
    "__init__", "archive", "arrays", "capi", "certificate", "checkpoint", "directory", "dlpack", "errors", "execute",
    "files", "fill_kinds", "formats", "formula", "generator", "inspect", "loader", "manifest", "native", "program",
    "signature", "state", "strict_json", "tensorfile", "text", "training", "tree", "verify",
    *(f"generation/{name}" for name in (
        "__init__", "command", "constraints", "drafting", "embed", "engine", "options", "sampling", "scheduler", "seen",
        "sources", "speech", "stream", "texts", "tokenizer",
    )),
)  # fmt: skip
#: what a load imports
_LOADING = (
    "__init__", "archive", "directory", "errors", "loader", "manifest", "native", "signature", "state", "strict_json",
    "tree",
)  # fmt: skip
_TAKEN = {"mycc", "numpy", "torch", "lib", "src", "python"}


def import_name(name: str) -> str:
    """The name by which a package is imported: `name` as an identifier that hides no other module."""
    identifier = re.sub(r"\W", "_", name, flags=re.ASCII) or "model"
    if identifier[0].isdigit():
        identifier = f"model_{identifier}"
    if identifier in sys.stdlib_module_names or identifier in _TAKEN or keyword.iskeyword(identifier):
        identifier += "_model"
    return identifier


def python_members(name: str) -> dict[str, bytes]:
    """Member -> contents of everything that makes the package importable as `name` and runnable."""
    standalone = _RUNTIME / "standalone"
    members = {
        "__main__.py": (standalone / "archive_main.py").read_bytes(),
        f"{name}/__init__.py": (standalone / "package_init.py").read_bytes(),
        f"{name}/__main__.py": (standalone / "package_main.py").read_bytes(),
    }
    for module in _COPIED:
        members[f"{name}/runtime/{module}.py"] = (_RUNTIME / f"{module}.py").read_bytes()
    for member in [f"{name}/__init__.py", *(f"{name}/runtime/{module}.py" for module in _LOADING)]:
        members[f"{member}c"] = _bytecode(members[member], member)
    return members


def _bytecode(source: bytes, member: str) -> bytes:
    """A module compiled for the interpreter that runs here, so that importing the package there costs little.

    Interpreters with another magic number pass it over for the source. "Unchecked" hash-based form of PEP 552: the zip
    file's hashes stand for both.
    """
    code = compile(source, f"<package>/{member}", "exec", dont_inherit=True, optimize=0)
    # Marshal marks what is referred to more than once, and what is interned, which depends on the whole process: here
    # all of it is, so that equal sources give equal bytes.
    shared = [sys.intern(part) if isinstance(part, str) and len(part) == 1 else part for part in _parts(code)]
    data = marshal.dumps(code)
    del shared
    unchecked = (1).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked + source_hash(source) + data


def _parts(value: object) -> Iterator[object]:
    """Everything that a code object is made of and shares with other objects."""
    yield value
    parts: tuple[object, ...] = ()
    if isinstance(value, CodeType):
        parts = (value.co_consts, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        parts += (value.co_filename, value.co_name, value.co_qualname)
    elif isinstance(value, tuple | frozenset):
        parts = tuple(value)
    for part in parts:
        yield from _parts(part)


def installed_wrappers() -> dict[str, bytes]:
    """Interpreter tag ("cp311-x86_64") -> the `_binding` modules that stand beside the installed mycc.runtime."""
    found: dict[str, bytes] = {}
    for folder in _native_folders():
        for path in sorted(folder.glob("_binding*.so")):
            tag = wrapper_tag(path.name.removeprefix("_binding"))
            if tag:
                found.setdefault(tag, path.read_bytes())
    return found


def installed_loader() -> bytes | None:
    """The libmycc.so of the installed mycc, built for the oldest CPU of its kind; None when there is none."""
    for folder in _native_folders():
        path = folder / LIBRARY
        if path.exists():
            return path.read_bytes()
    return None


def _native_folders() -> list[Path]:
    """Where an installation puts compiled files: beside `_binding` (an editable one has them elsewhere), and here."""
    spec: ModuleSpec | None = find_spec(f"{runtime.__name__}._binding")
    folders = [Path(spec.origin).parent] if spec is not None and spec.origin else []
    return [*folders, _RUNTIME]
