from __future__ import annotations

from pathlib import Path

import pytest
from mycc.compiler.build.cache import Cache
from mycc.compiler.build.toolchain import compiler_environment, find_toolchain
from mycc.compiler.machine import local_cpu
from mycc.runtime.errors import CompileError

from .build_support import write_script

HOST = local_cpu.machine()
OTHER = "aarch64" if HOST == "x86_64" else "x86_64"


def banner(family: str, version: str, machine: str = HOST) -> str:
    return f"echo 'Target: {machine}-linux-gnu' >&2; echo '{family} version {version} (Some 1.2)' >&2"


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on PATH, empty; CXX unset, no zig."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_the_compiler_of_this_machine(cache: Cache) -> None:
    found = find_toolchain(HOST, cache)
    assert found.arch == HOST
    assert found.family in ("gcc", "clang")
    assert found.version in found.identity
    assert found.label == f"{'g++' if found.family == 'gcc' else 'clang++'} {found.version}"
    assert find_toolchain(HOST, cache) is found


def test_no_compiler(empty_path: Path, cache: Cache) -> None:
    with pytest.raises(CompileError, match=r"no C\+\+ compiler found") as error:
        find_toolchain(HOST, cache)
    assert "looked for $CXX, g++" in str(error.value)
    assert "apt install g++" in str(error.value)


def test_too_old(empty_path: Path, cache: Cache) -> None:
    write_script(empty_path / "g++", banner("gcc", "9.4.0"))
    write_script(empty_path / "clang++", banner("clang", "13.0.1"))
    with pytest.raises(CompileError, match=r"the C\+\+ compiler is too old: mycc needs g\+\+ 11 or later") as error:
        find_toolchain(HOST, cache)
    assert error.value.details == [
        f"{empty_path}/g++ is g++ 9.4.0, for {HOST}",
        f"{empty_path}/clang++ is clang++ 13.0.1, for {HOST}",
    ]


def test_a_newer_one_beside_an_old_one_is_taken(empty_path: Path, cache: Cache) -> None:
    write_script(empty_path / "g++", banner("gcc", "9.4.0"))
    write_script(empty_path / "g++-12", banner("gcc", "12.1.0"))
    write_script(empty_path / "clang++", banner("clang", "17.0.1"))
    found = find_toolchain(HOST, cache)
    assert (found.command, found.version) == (("g++-12",), "12.1.0")


def test_clang_serves_where_there_is_no_gcc(empty_path: Path, cache: Cache) -> None:
    write_script(empty_path / "clang++-15", banner("Debian clang", "15.0.6"))
    found = find_toolchain(HOST, cache)
    assert (found.family, found.label) == ("clang", "clang++ 15.0.6")


def test_cxx_comes_first(empty_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(empty_path / "g++", banner("gcc", "12.2.0"))
    mine = write_script(empty_path.parent / "my cxx", banner("gcc", "14.1.0"))
    monkeypatch.setenv("CXX", f"'{mine}' -fno-lto")
    found = find_toolchain(HOST, cache)
    assert (found.command, found.version) == ((str(mine), "-fno-lto"), "14.1.0")


def test_cxx_may_be_a_path_with_blanks(empty_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = write_script(empty_path.parent / "my cxx", banner("gcc", "14.1.0"))
    monkeypatch.setenv("CXX", str(mine))
    assert find_toolchain(HOST, cache).command == (str(mine),)
    monkeypatch.setenv("CXX", "'my cxx")
    with pytest.raises(CompileError, match="cannot read CXX, which is 'my cxx: no closing quotation"):
        find_toolchain(HOST, cache)


def test_cxx_that_cannot_be_used_is_an_error(empty_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(empty_path / "g++", banner("gcc", "12.2.0"))
    monkeypatch.setenv("CXX", "my-missing-c++")
    with pytest.raises(CompileError, match=r"CXX names 'my-missing-c\+\+', which is no program"):
        find_toolchain(HOST, cache)
    monkeypatch.setenv("CXX", str(write_script(empty_path.parent / "old", banner("gcc", "10.2.1"))))
    with pytest.raises(CompileError, match=r"too old: g\+\+ 10\.2\.1, mycc needs g\+\+ 11 or later"):
        find_toolchain(HOST, cache)
    monkeypatch.setenv("CXX", str(write_script(empty_path.parent / "cross", banner("gcc", "12.2.0", OTHER))))
    with pytest.raises(CompileError, match=f"makes code for {OTHER}, not for {HOST}"):
        find_toolchain(HOST, cache)
    monkeypatch.setenv("CXX", str(write_script(empty_path.parent / "icc", "echo icc")))
    with pytest.raises(CompileError, match=r"neither g\+\+ nor clang\+\+"):
        find_toolchain(HOST, cache)
    monkeypatch.setenv("CXX", str(write_script(empty_path.parent / "broken", "echo cannot load libfoo; exit 1")))
    with pytest.raises(CompileError, match=r"does not work: .* exit code 1") as error:
        find_toolchain(HOST, cache)
    assert error.value.details == ["cannot load libfoo"]


def test_a_compiler_is_asked_once_and_again_when_it_changes(empty_path: Path, cache: Cache) -> None:
    from mycc.compiler.build import toolchain

    count = empty_path.parent / "count"
    program = empty_path / "g++"
    write_script(program, f"echo run >>'{count}'; {banner('gcc', '12.2.0')}")
    assert find_toolchain(HOST, cache).version == "12.2.0"
    runs = len(count.read_text().split())
    toolchain._find.cache_clear()  # another process
    assert find_toolchain(HOST, cache).version == "12.2.0"
    assert len(count.read_text().split()) == runs
    write_script(program, banner("gcc", "13.10.0"))
    toolchain._find.cache_clear()
    assert find_toolchain(HOST, cache).version == "13.10.0"


def test_cross_compiler_by_its_name(empty_path: Path, cache: Cache) -> None:
    write_script(empty_path / "g++", banner("gcc", "12.2.0"))
    write_script(empty_path / f"{OTHER}-linux-gnu-g++-12", banner("gcc", "12.2.0", OTHER))
    found = find_toolchain(OTHER, cache)
    assert (found.arch, found.command) == (OTHER, (f"{OTHER}-linux-gnu-g++-12",))


def test_no_cross_compiler(empty_path: Path, cache: Cache) -> None:
    write_script(empty_path / "g++", banner("gcc", "12.2.0"))
    with pytest.raises(CompileError, match=rf"no C\+\+ compiler for {OTHER} found") as error:
        find_toolchain(OTHER, cache)
    assert f"{OTHER}-linux-gnu-g++" in str(error.value)
    assert "pip install ziglang" in str(error.value)


def test_the_environment_adds_no_include_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/somewhere")
    environment = compiler_environment(tmp_path)
    assert "CPLUS_INCLUDE_PATH" not in environment
    assert environment["TMPDIR"] == str(tmp_path)
