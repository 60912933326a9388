from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mycc.compiler.build import BuildOptions, Target, build, host_target, parse_targets
from mycc.compiler.build.compile import _own_flags
from mycc.compiler.build.elf import read_dynamic_symbols
from mycc.compiler.build.includes import Headers
from mycc.runtime.errors import CompileError

from ..helpers.interrupts import INTERRUPTIBLE
from .build_support import EMPTY, EXP, SIZES, call, load, write_script

HOST = host_target()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that tests share which do not look at what is cached."""
    return tmp_path_factory.mktemp("cache")


def left_behind(cache: Path) -> list[Path]:
    return list((cache / "tmp").iterdir())


def test_a_program_runs(shared: Path) -> None:
    result = build({"program": EXP}, SIZES, HOST, BuildOptions(cache_dir=shared))
    assert result.compiled + result.cached == 1
    program = load(result.library)
    assert (program.abi_version, program.n_entries, program.entries[0].name) == (5, 1, b"forward")
    x = np.linspace(-2, 2, 37, dtype=np.float32)
    y = np.zeros_like(x)
    call(program, [x], [y], [37])
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_only_libm_is_imported_and_one_symbol_exported(shared: Path) -> None:
    result = build({"program": EXP}, SIZES, HOST, BuildOptions(cache_dir=shared))
    symbols = read_dynamic_symbols(result.library)
    assert symbols.exports == ("mycc_program_get",)
    assert symbols.libraries == ("libm.so.6",)
    assert symbols.imports == (("expf", "libm.so.6"),)


def test_nothing_is_imported_by_a_program_without_maths(shared: Path) -> None:
    symbols = read_dynamic_symbols(build({"program": EMPTY}, {}, HOST, BuildOptions(cache_dir=shared)).library)
    assert symbols.libraries == symbols.imports == ()


def test_a_call_of_libc_is_refused(shared: Path) -> None:
    source = EMPTY + 'extern "C" int printf(const char *, ...);\nextern "C" void used() { printf("hello"); }\n'
    source = source.replace("return nullptr;", "used(); return nullptr;").replace(
        "const mycc_program *", 'extern "C" void used();\nconst mycc_program *', 1
    )
    with pytest.raises(CompileError, match="functions that a package must not depend on: printf") as error:
        build({"program": source}, {}, HOST, BuildOptions(cache_dir=shared))
    assert "fault of mycc" in str(error.value)


def test_a_program_without_its_symbol_is_refused(shared: Path) -> None:
    with pytest.raises(CompileError, match="must export mycc_program_get alone, and exports nothing"):
        build({"program": "int unused() { return 1; }\n"}, {}, HOST, BuildOptions(cache_dir=shared))


SUPPORT = """
#include "mycc/abi.h"
extern "C" void *memcpy(void *, const void *, size_t);
extern "C" void *memmove(void *, const void *, size_t);
extern "C" void *memset(void *, int, size_t);
extern "C" int memcmp(const void *, const void *, size_t);
// symbols: what, destination, source, count; the output's bytes are changed in place.
static void run(const mycc_call *call) {
  const int64_t *s = call->symbols;
  uint8_t *y = (uint8_t *)call->outputs[0];
  const uint8_t *x = (const uint8_t *)call->inputs[0];
  if (s[0] == 0) memcpy(y + s[1], x + s[2], (size_t)s[3]);
  if (s[0] == 1) memmove(y + s[1], y + s[2], (size_t)s[3]);
  if (s[0] == 2) memset(y + s[1], (int)s[2] + 256, (size_t)s[3]);
  if (s[0] == 3) *(int32_t *)y = memcmp(x + s[1], x + s[2], (size_t)s[3]);
}
static const mycc_entry entry = {"f", 1, 1, 4, 0, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0, run, nullptr};
static const mycc_program program = {MYCC_ABI_VERSION, 1, &entry, "cpu"};
const mycc_program *mycc_program_get(void) { return &program; }
"""
SIZES_AROUND = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 100, 257]


def test_the_memory_functions_of_a_package(shared: Path) -> None:
    flags = ("-fno-builtin",)
    result = build({"program": SUPPORT}, {}, HOST, BuildOptions(cache_dir=shared, flags=flags))
    assert read_dynamic_symbols(result.library).imports == ()
    program = load(result.library)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, 600, dtype=np.uint8)
    for n in SIZES_AROUND:
        y = np.zeros(600, np.uint8)
        expected = y.copy()
        expected[3 : 3 + n] = x[5 : 5 + n]
        call(program, [x], [y], [0, 3, 5, n])
        np.testing.assert_array_equal(y, expected)
        for to, source in [(10, 11), (11, 10), (10, 25), (30, 10), (10, 10), (10, 43), (50, 10), (10, 300)]:
            y = x.copy()
            expected = x.copy()
            expected[to : to + n] = x[source : source + n]
            call(program, [x], [y], [1, to, source, n])
            np.testing.assert_array_equal(y, expected)
        y = np.zeros(600, np.uint8)
        expected = y.copy()
        expected[7 : 7 + n] = 201
        call(program, [x], [y], [2, 7, 201, n])
        np.testing.assert_array_equal(y, expected)
    answer = np.zeros(4, np.uint8)
    for left, right, n in [(0, 0, 50), (0, 1, 50), (1, 0, 50), (0, 1, 0)]:
        call(program, [x], [answer], [3, left, right, n])
        a, b = x[left : left + n].tobytes(), x[right : right + n].tobytes()
        assert answer.view(np.int32)[0] == (a > b) - (a < b)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    sources = {"program": EXP, "other": "static int hidden() { return 7; }\nint other() { return hidden(); }\n"}
    first = build(sources, SIZES, HOST, BuildOptions(cache_dir=tmp_path / "a", jobs=1))
    again = build(
        dict(reversed(sources.items())), SIZES, HOST, BuildOptions(cache_dir=tmp_path / "b" / "deeper", jobs=2)
    )
    assert (first.compiled, again.compiled) == (2, 2)
    assert first.library == again.library
    assert str(tmp_path).encode() not in first.library


def test_what_has_not_changed_is_not_compiled_again(tmp_path: Path) -> None:
    other = "int other() { return 1; }\n"
    options = BuildOptions(cache_dir=tmp_path)

    def counts(sources: dict[str, str], headers: dict[str, str], options: BuildOptions = options) -> tuple[int, int]:
        result = build(sources, headers, HOST, options)
        return result.compiled, result.cached

    assert counts({"program": EXP, "other": other}, SIZES) == (2, 0)
    assert counts({"program": EXP, "other": other}, SIZES) == (0, 2)
    assert counts({"program": EXP, "other": other + "\n"}, SIZES) == (1, 1)
    assert counts({"program": EXP, "other": other}, {"sizes.h": "#define FACTOR 2\n"}) == (1, 1)
    assert counts({"program": EXP, "other": other}, {**SIZES, "unused.h": "#define OTHER\n"}) == (0, 2)
    assert counts({"program": EXP, "other": other}, SIZES, replace(options, version="9.9")) == (2, 0)
    assert counts({"program": EXP, "other": other}, SIZES, replace(options, unit_flags={"other": ("-O1",)})) == (1, 1)


def test_a_damaged_cache_is_built_again(tmp_path: Path) -> None:
    options = BuildOptions(cache_dir=tmp_path)
    first = build({"program": EXP}, SIZES, HOST, options)
    for file in (tmp_path / "entries").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-1])
    again = build({"program": EXP}, SIZES, HOST, options)
    assert (again.compiled, again.cached) == (1, 0)
    assert again.library == first.library
    assert build({"program": EXP}, SIZES, HOST, options).cached == 1


def test_flags_that_the_compiler_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="did not compile") as error:
        build({"program": EXP}, SIZES, HOST, BuildOptions(cache_dir=tmp_path, flags=("--no-such-flag",)))
    assert "--no-such-flag" in error.value.details[0]
    assert "Compile without your flags, --no-such-flag. The generated source is kept in" in str(error.value)


def test_generated_code_that_does_not_compile(tmp_path: Path) -> None:
    sources = {"a": "int a() { return 1; }\n", "wrong": '#include "sizes.h"\nint f() { return missing_name; }\n'}
    with pytest.raises(CompileError, match="wrong: generated code did not compile") as error:
        build(sources, SIZES, HOST, BuildOptions(cache_dir=tmp_path))
    text = str(error.value)
    assert "wrong.cpp:2:" in text
    assert "missing_name" in text
    assert "This is a fault of mycc, not of the model." in text
    kept = Path(re.search(r"kept in (\S+)\.$", text)[1])  # type: ignore[index]
    assert (kept / "wrong.cpp").read_text() == sources["wrong"]
    assert (kept / "sizes.h").exists()
    again = subprocess.run(["sh", str(kept / "reproduce.sh")], capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert "missing_name" in again.stderr
    assert left_behind(tmp_path) == []


def test_of_two_failures_the_first_by_name_or_length_is_reported(tmp_path: Path) -> None:
    padding = "// longer\n" * 100
    sources = {"z": f"{padding}wrong z;\n", "a": "wrong a;\n"}
    for _ in range(3):
        with pytest.raises(CompileError, match="z: generated code did not compile"):
            build(sources, {}, HOST, BuildOptions(cache_dir=tmp_path, jobs=2))


def fake_compiler(tmp_path: Path, action: str) -> str:
    banner = f"echo 'Target: {HOST.arch}-linux-gnu' >&2; echo 'gcc version 12.2.0' >&2"
    script = f'case "$*" in *-v) {banner};; *print-prog-name*) ;; *) {action};; esac'
    return str(write_script(tmp_path / "fake-g++", script))


def test_a_full_disk_under_the_compiler_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    action = "echo 'fatal error: error writing to program.o: No space left on device' >&2; exit 1"
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, action))
    cache = tmp_path / "cache"
    with pytest.raises(CompileError, match=rf"cannot write to the cache folder {cache}: .*No space left on device"):
        build({"program": EMPTY}, {}, HOST, BuildOptions(cache_dir=cache))
    assert left_behind(cache) == []


def test_a_compiler_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, "kill -9 $$"))
    with pytest.raises(CompileError, match=r"the C\+\+ compiler was killed; the memory may be too small") as error:
        build({"program": EMPTY}, {}, HOST, BuildOptions(cache_dir=tmp_path / "cache", jobs=2))
    assert "--jobs 1" in str(error.value)


def test_a_fault_of_the_compiler_is_worked_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles again with less; where that does not help, the error is the compiler's own."""
    fault = "echo 'internal compiler error: in compute_live_loop_exits' >&2; exit 1"
    whole = f'case "$*" in *-fno-tree-ch*|*-shared*) exec g++ "$@";; *) {fault};; esac'
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, whole))
    built = build({"program": EMPTY}, {}, HOST, BuildOptions(cache_dir=tmp_path / "cache"))
    assert any(
        "program: the compiler failed by a fault of its own; again with -fno-tree-ch" in line for line in built.log
    )
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, fault))
    with pytest.raises(CompileError, match="internal compiler error"):
        build({"program": EMPTY}, {}, HOST, BuildOptions(cache_dir=tmp_path / "other"))


BUILD_SCRIPT = """
import sys
from pathlib import Path
from mycc.compiler.build import BuildOptions, build, host_target
build({"program": sys.argv[2]}, {}, host_target(), BuildOptions(cache_dir=Path(sys.argv[1])))
"""


def test_a_build_killed_half_way_leaves_nothing_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, "sleep 5"))
    cache = tmp_path / "cache"
    process = subprocess.Popen([sys.executable, "-c", BUILD_SCRIPT, str(cache), EMPTY])
    deadline = time.monotonic() + 60
    while not list(cache.glob("tmp/build-*/program.cpp")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    (folder,) = left_behind(cache)
    monkeypatch.delenv("CXX")
    result = build({"program": EMPTY}, {}, HOST, BuildOptions(cache_dir=cache))
    assert result.compiled == 1
    assert left_behind(cache) == [folder]  # too young to be taken for a dead one
    os.utime(folder, (1, 1))
    build({"program": EMPTY + "\n"}, {}, HOST, BuildOptions(cache_dir=cache))
    assert left_behind(cache) == []


def test_an_interrupted_build_ends_its_compilers_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, f"echo $$ >>'{started}'; sleep 60"))
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE + BUILD_SCRIPT, str(cache), EMPTY], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not started.exists() or not started.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert left_behind(cache) == []
    for pid in started.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_a_running_builds_folder_is_not_swept_away(tmp_path: Path) -> None:
    from mycc.compiler.build.workspace import workspace

    with workspace(tmp_path) as mine:
        os.utime(mine, (1, 1))
        with workspace(tmp_path):
            assert mine.exists()
    assert left_behind(tmp_path) == []


def test_parallel_builds_of_the_same_sources(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILD_SCRIPT, str(tmp_path), EMPTY]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert left_behind(tmp_path) == []
    assert build({"program": EMPTY}, {}, HOST, BuildOptions(cache_dir=tmp_path)).cached == 1


@pytest.mark.parametrize("name", ["../up", "a/b", "", "-o", "mycc_support"])
def test_a_units_name_is_a_file_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a translation unit cannot be called"):
        build({name: EMPTY}, {}, HOST, BuildOptions(cache_dir=tmp_path))


@pytest.mark.parametrize("name", ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_every_level_of_an_architecture_can_be_built_on_any_of_it(name: str, shared: Path) -> None:
    (target,) = parse_targets(name)
    if target.arch != HOST.arch:
        pytest.skip(f"this machine is {HOST.arch}")
    library = build({"program": EXP}, SIZES, target, BuildOptions(cache_dir=shared)).library
    assert read_dynamic_symbols(library).exports == ("mycc_program_get",)


def test_cross_build(shared: Path) -> None:
    target: Target = parse_targets("cpu:aarch64" if HOST.arch == "x86_64" else "cpu:x86-64-v3")[0]
    try:
        result = build({"program": EXP}, SIZES, target, BuildOptions(cache_dir=shared))
    except CompileError as error:
        if error.message.startswith("no C++ compiler for"):
            pytest.skip(str(error))
        raise
    machine = {"aarch64": 183, "x86_64": 62}[target.arch]
    assert int.from_bytes(result.library[18:20], "little") == machine
    assert read_dynamic_symbols(result.library).exports == ("mycc_program_get",)


def test_the_stage_itself_is_fast(tmp_path: Path) -> None:
    """Beyond the compiler: with a compiler that does nothing but fail, and with everything cached."""
    options = BuildOptions(cache_dir=tmp_path)
    sources = {f"unit{i}": f"{EXP}// {i}\n" for i in range(8)}
    sources = {name: text.replace("mycc_program_get", f"get_{name}") for name, text in sources.items()}
    sources["program"] = EMPTY
    build(sources, SIZES, HOST, options)
    best = min(build(sources, SIZES, HOST, options).seconds for _ in range(5))
    assert best < 0.05


def test_headers_follow_includes_through_generated_and_own_ones(tmp_path: Path) -> None:
    (tmp_path / "mycc").mkdir()
    (tmp_path / "mycc" / "a.h").write_text('#include "b.h"\n#  include <stdint.h>\n')
    (tmp_path / "mycc" / "b.h").write_text('#include "made.h"\n')
    (tmp_path / "mycc" / "c.h").write_text("")
    made = {"made.h": "#include <mycc/a.h>\n", "apart.h": ""}
    found = Headers(made, [tmp_path]).of('#include "mycc/a.h"\n')
    assert list(found) == ["made.h", "mycc/a.h", "mycc/b.h"]
    assert found["made.h"] == made["made.h"]
    assert Headers(made, [tmp_path]).of('#include "missing.h"\n') == {}
    assert "mycc/c.h" in Headers(made, [tmp_path]).of("#include NAME\n")


KERNELS = {
    "program": EXP,
    "kernels_0": """// Units of kernels begin so.
#include "kernels/math/math.h"
#include "kernels/loops/loops.h"
using namespace mycc;
void kernels_0(float *y, const float *x, int64_t n) {
  for (int64_t i = 0; i + W <= n; i += W) store(y + i, exp(load(x + i)) + sin(load(x + i)));
}
""",
}


GCC = pytest.mark.skipif(shutil.which("g++") is None, reason="only GCC looks for such headers")
PRECOMPILED = "kernels/math/math.h.gch"


@GCC
def test_a_precompiled_header_is_made_when_it_is_missed_twice_and_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, 'exec g++ -H "$@"'))  # -H tells the headers that it reads
    one, other = BuildOptions(cache_dir=tmp_path / "one"), BuildOptions(cache_dir=tmp_path / "other")

    def built(comment: str, options: BuildOptions) -> tuple[bool, bool, bytes]:
        """Whether the header was made, and whether the unit was compiled with it."""
        unit = KERNELS["kernels_0"] + f"// {comment}\n"
        result = build({**KERNELS, "kernels_0": unit}, SIZES, HOST, options)
        made = any("precompiled in" in line for line in result.log)
        return made, any(line.startswith("!") and line.endswith(PRECOMPILED) for line in result.log), result.library

    assert [built(comment, one)[:2] for comment in "abc"] == [(False, False), (True, False), (False, True)]
    assert built("c", one)[2] == built("c", other)[2]
    assert built("d", replace(one, flags=("-O1",)))[:2] == (False, False)
    assert built("d", replace(one, version="9.9"))[:2] == (False, False)


@GCC
def test_a_compiler_that_stops_at_its_precompiled_header_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = f"if [ -e {PRECOMPILED} ]; then echo 'fatal error: had to relocate PCH' >&2; exit 1; fi"
    monkeypatch.setenv("CXX", fake_compiler(tmp_path, f'{stops}; exec g++ "$@"'))
    for comment in "abc":
        unit = KERNELS["kernels_0"] + f"// {comment}\n"
        assert build({**KERNELS, "kernels_0": unit}, SIZES, HOST, BuildOptions(cache_dir=tmp_path)).library


def test_a_long_program_is_compiled_with_less_effort() -> None:
    assert _own_flags("program.cpp", "x" * 1000) == ()
    assert "-O1" in _own_flags("program.cpp", "x" * 100_000)
    assert _own_flags("kernels_0.cpp", "x" * 100_000) == ()
