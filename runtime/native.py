"""Brings libmycc.so into the process and opens it with the fastest interface that fits this interpreter.

Where libmycc.so comes from, first match wins: the one already loaded here by another copy of this module (a package
carries one) with the same ABI; the one of the installed mycc; the copy inside the package that this module was
imported from. The interface is the pybind11 module `_binding` where one was built for this interpreter, else ctypes
(capi.py). Nothing is written to disk: code from a package is loaded from memory, or where the system forbids that, from
a private file that has no name.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .errors import InputError, LoadError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .archive import Archive

__all__ = [
    "ABI_VERSION",
    "LIBRARY",
    "code_file",
    "installed_file",
    "interface_name",
    "library_path",
    "open_library",
    "wrapper_tag",
]

ABI_VERSION = 5
LIBRARY = "libmycc.so"

_MFD_CLOEXEC, _MFD_SEALED, _MFD_EXEC = 0x1, 0x2, 0x10  # <linux/memfd.h>; MFD_EXEC is known since Linux 6.3
_ADD_SEALS, _ALL_SEALS = 1033, 0xF  # <linux/fcntl.h>: size and bytes stay as they are
_opened: list[Any] = []  # the interface of this copy of the module, once opened
_opening = allocate_lock()


def open_library() -> Any:
    """The process's libmycc.so behind `_binding.Library` or `capi.Library`, which have the same methods.

    Raises:
        LoadError: no libmycc.so for this machine, or it cannot be loaded; or this is a subinterpreter.
    """
    if not _opened:
        with _opening:
            if not _opened:
                _refuse_subinterpreter()
                _opened.append(_open())
    return _opened[0]


def library_path() -> str:
    """Path of the libmycc.so of this process.

    Raises:
        LoadError: as of open_library().
    """
    open_library()
    return _process_libraries()[ABI_VERSION]


def _refuse_subinterpreter() -> None:
    """Raises in an interpreter that is not the first of its process: extension modules such as numpy, and how they take
    the interpreter's lock, belong to the first one; others would wait for it for ever."""
    from importlib import import_module

    for name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13, and before
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise LoadError(
                "a package cannot be loaded in a subinterpreter",
                hint="Load it in the first interpreter of the process, or in a process of its own.",
            )
        return


def interface_name() -> str:
    """How the runtime is called here: "pybind11" or "ctypes"."""
    return "ctypes" if type(open_library()).__module__.endswith("capi") else "pybind11"


def wrapper_tag(suffix: str) -> str:
    """Interpreter tag of an extension module's suffix: ".cpython-311-x86_64-linux-gnu.so" -> "cp311-x86_64"."""
    parts = suffix.strip(".").split(".")[0].split("-")
    if len(parts) < 3 or parts[0] != "cpython":
        return ""
    libc = parts[4] if len(parts) > 4 else ""
    return f"cp{parts[1]}-{parts[2]}" + ("" if libc in ("", "gnu") else f"-{libc}")


def _open() -> Any:
    archive = _own_archive()
    wrapper = _installed_wrapper() if archive is None else _packaged_wrapper(archive)
    shared = _process_libraries()
    path = shared.get(ABI_VERSION) or (_installed_library() if archive is None else _packaged_library(archive))
    if wrapper is not None:
        wrapper.set_errors(LoadError, InputError, RunError)
        library = wrapper.Library(path)
    else:
        from .capi import Library

        library = Library(path)
    shared.setdefault(ABI_VERSION, path)
    return library


def _process_libraries() -> dict[int, str]:
    """Path of the libmycc.so loaded in this process, by ABI.

    It lives in sys.modules because every package brings its own copy of this module, and they have to agree.
    """
    module = sys.modules.setdefault("_mycc_process", ModuleType("_mycc_process", _process_libraries.__doc__))
    libraries: dict[int, str] = module.__dict__.setdefault("libraries", {})
    return libraries


def _own_archive() -> Archive | None:
    """The package this module was imported from, when it was (zipimport), else None."""
    path = getattr(globals().get("__loader__"), "archive", None)
    if path is None:
        return None
    from .archive import Archive

    return Archive(path)


def _installed_wrapper() -> Any:
    from importlib import import_module

    try:
        return import_module("._binding", __package__)
    except ImportError:
        return None  # not built for this interpreter: ctypes does the same work


def installed_file(name: str) -> str | None:
    """Path of a file that lies beside the installed mycc.runtime, such as libmycc.so; None when it does not."""
    wrapper = _installed_wrapper()
    folders = [os.path.dirname(__file__)]
    if wrapper is not None:
        folders.insert(0, os.path.dirname(wrapper.__file__))
    folders += [os.path.join(folder, "mycc", "runtime") for folder in sys.path]
    paths = (os.path.join(folder, name) for folder in folders)
    return next((path for path in paths if os.path.exists(path)), None)


def _installed_library() -> str:
    path = installed_file(LIBRARY)
    if path is None:
        hint = "Install mycc again: pip install --force-reinstall with the path of its wheel or checkout."
        raise LoadError(f"mycc's own {LIBRARY} is missing", hint=hint)
    return path


def _packaged_wrapper(archive: Archive) -> Any:
    from importlib.machinery import EXTENSION_SUFFIXES

    member = archive.manifest["python"].get(wrapper_tag(EXTENSION_SUFFIXES[0]))
    if member is None:
        return None
    code = _checked_code(archive, member)
    try:
        return _import_extension(f"{__package__}._binding", code_file(code, "_binding.so"))
    except ImportError:
        return None  # a C library older than the wrapper's: ctypes needs libmycc.so alone


def _import_extension(name: str, path: str) -> ModuleType:
    from importlib.machinery import ExtensionFileLoader, ModuleSpec
    from importlib.util import module_from_spec

    loader = ExtensionFileLoader(name, path)
    module = module_from_spec(ModuleSpec(name, loader, origin=path))
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _packaged_library(archive: Archive) -> str:
    """Path of the package's libmycc.so for this kind of CPU; every copy runs on the oldest CPU of its kind."""
    machine = {"arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)
    prefix = {"x86_64": "x86-64"}.get(machine, machine)
    targets = archive.manifest["targets"]
    for row in targets:
        gpu = row["target"].startswith("cuda:")  # its host program runs on every CPU of the kind
        if row["arch"] == machine if gpu else row["isa"].startswith(prefix):
            return code_file(_checked_code(archive, row["loader"]), LIBRARY)
    names = ", ".join(row["target"] for row in targets)
    raise LoadError(
        f"{archive.label} has no code for this CPU ({machine})", hint=f"It holds {names}; compile it for {prefix} too."
    )


def _checked_code(archive: Archive, member: str) -> memoryview:
    """A copy of a member that has its hash: the file may change, what runs may not."""
    from .archive import sha256_hex

    archive.check(member)
    code = bytes(archive.read(member))
    if sha256_hex(code) != archive.manifest["members"][member]["sha256"]:
        raise LoadError(f"{archive.label} changed while it was loaded")
    return memoryview(code)


def code_file(data: memoryview, name: str) -> str:
    """A path from which the dynamic linker can load `data`. The descriptor stays open: the path must not be reused."""
    folders = filter(None, [os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"])
    ways: list[Callable[[str], int]] = [_memory_file, *(partial(_unnamed_file, folder) for folder in folders)]
    for create in ways:
        try:
            descriptor = create(name)
        except OSError:
            continue
        if _written(descriptor, data) and _executable(descriptor):
            _seal(descriptor)
            return f"/proc/self/fd/{descriptor}"
        os.close(descriptor)
    raise LoadError(
        f"cannot load {name}: this system lets no program run from memory or from a temporary folder",
        hint="Set TMPDIR to a folder on a file system that is not mounted noexec, or install mycc.",
    )


def _memory_file(name: str) -> int:
    try:
        return os.memfd_create(name, _MFD_CLOEXEC | _MFD_SEALED | _MFD_EXEC)
    except OSError:
        return os.memfd_create(name, _MFD_CLOEXEC | _MFD_SEALED)


def _unnamed_file(folder: str, name: str) -> int:
    """A file in `folder` that only this process can open and that is gone when it is closed."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o700)
    except OSError:
        from tempfile import mkstemp

        descriptor, path = mkstemp(prefix=name, dir=folder)
        os.unlink(path)
        return descriptor


def _written(descriptor: int, data: memoryview) -> bool:
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except OSError:
        return False  # the folder's disk is full
    return True


def _seal(descriptor: int) -> None:
    """Makes a memory file final; another file has no name by which anybody could open it."""
    import fcntl

    if os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:"):
        fcntl.fcntl(descriptor, _ADD_SEALS, _ALL_SEALS)


def _executable(descriptor: int) -> bool:
    """Whether the system maps this file as code, as the dynamic linker will."""
    import mmap

    try:
        mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError:
        return False
    return True
