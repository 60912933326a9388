"""Links the objects of a package's model.so, and checks that it depends on libm alone and offers one symbol."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...runtime.errors import CompileError
from ..machine.targets import Target
from .elf import read_dynamic_symbols
from .toolchain import Toolchain

__all__ = ["EXPORT", "EXPORT_MAP", "check_library", "foreign_symbols", "link_command", "undefined_symbols"]

EXPORT = "mycc_program_get"
EXPORT_MAP = f"{{ global: {EXPORT}; local: *; }};\n"
_MATH = "libm.so.6"
_LINK = (
    "-shared", "-nostdlib", "-s",
    "-Wl,--no-undefined", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--gc-sections", "-Wl,--as-needed",
    "-Wl,--hash-style=gnu", "-Wl,--build-id=none",
)  # fmt: skip


def link_command(
    toolchain: Toolchain, target: Target, objects: Sequence[str], export_map: str, output: str
) -> list[str]:
    """The command that links `objects`; all paths are relative to the working folder."""
    flags = () if toolchain.family == "zig" else target.flags
    libraries = ["-lm"] if toolchain.family == "zig" else ["-lm", "-lgcc"]
    script = f"-Wl,--version-script={export_map}"
    return [*toolchain.command, *flags, *_LINK, script, "-o", output, *objects, *libraries]


def undefined_symbols(output: str) -> list[str]:
    """The symbols that a failed link missed, in the words of GNU ld and of LLVM's lld."""
    found = re.findall(r"undefined (?:reference to|symbol:?)(?: symbol)? (?:[`']([^'`]+)|(.+))", output)
    return sorted({(quoted or plain).split("@")[0] for quoted, plain in found})


def check_library(library: bytes) -> None:
    """Raises CompileError unless the library imports from libm alone and exports EXPORT alone."""
    try:
        symbols = read_dynamic_symbols(library)
    except ValueError as error:
        raise CompileError(f"the linker did not make a shared library: {error}") from None
    foreign = [name for name, source in symbols.imports if source != _MATH]
    if foreign:
        raise foreign_symbols(foreign)
    others = [name for name in symbols.libraries if name != _MATH]
    if others:
        raise CompileError(f"generated code depends on {', '.join(others)}; a package may depend on libm alone")
    if symbols.exports != (EXPORT,):
        offered = ", ".join(symbols.exports) or "nothing"
        raise CompileError(f"generated code must export {EXPORT} alone, and exports {offered}")


def foreign_symbols(names: Sequence[str]) -> CompileError:
    """Generated code calls what neither itself nor libm has."""
    return CompileError(f"generated code calls functions that a package must not depend on: {', '.join(names)}")
