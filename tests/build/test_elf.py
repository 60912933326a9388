from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest
from mycc.compiler.build.elf import read_dynamic_symbols
from mycc.compiler.build.link import check_library, undefined_symbols
from mycc.runtime.errors import CompileError


def libm() -> bytes:
    """The C library's own libm, as large an example as there is."""
    assert ctypes.util.find_library("m")
    ctypes.CDLL("libm.so.6")
    lines = Path("/proc/self/maps").read_text().splitlines()
    (path, *_) = [line.split()[-1] for line in lines if "libm.so.6" in line or "libm-2" in line]
    return Path(path).read_bytes()


def test_symbols_of_libm() -> None:
    symbols = read_dynamic_symbols(libm())
    assert {"expf", "tanh", "fmodf"} <= set(symbols.exports)
    assert "libc.so.6" in symbols.libraries
    assert "libc.so.6" in {library for _, library in symbols.imports}


def test_a_library_that_needs_libc_is_refused() -> None:
    with pytest.raises(CompileError, match="functions that a package must not depend on"):
        check_library(libm())


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an object at all", b"\x7fELF\x02\x01" + bytes(20)])
def test_what_is_no_library_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ELF file"):
        read_dynamic_symbols(data)
    with pytest.raises(CompileError, match="the linker did not make a shared library"):
        check_library(data)


def test_a_cut_library_is_refused() -> None:
    data = libm()
    with pytest.raises(ValueError, match="damaged ELF file"):
        read_dynamic_symbols(data[: len(data) // 2])


@pytest.mark.parametrize(
    "line",
    [
        "program.cpp:(.text+0x5): undefined reference to `printf'",
        "ld.lld: error: undefined symbol: printf",
        "/usr/bin/ld: program.o: undefined reference to symbol 'printf@@GLIBC_2.2.5'",
    ],
)
def test_missing_symbols_in_the_linkers_words(line: str) -> None:
    assert undefined_symbols(f"some text\n{line}\n{line}\n") == ["printf"]


def test_the_linker_names_a_template_whole() -> None:
    line = "program.cpp:(.text+0x5): undefined reference to `void mycc::tile_1x16<float>(mycc::TileOf<float> const&)'"
    assert undefined_symbols(line) == ["void mycc::tile_1x16<float>(mycc::TileOf<float> const&)"]
