"""What the runtime loads, and what it refuses before any code of the package runs."""

from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mycc.compiler.machine.local_cpu import cpu_flags
from mycc.runtime.archive import Archive
from mycc.runtime.errors import LoadError, RunError

from .conftest import Loaded
from .packages import ENTRIES, ISA, WEIGHTS, Draft, archive, compile_program, data_ranges


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    """A package whose code leaves a file behind when it is loaded, and that file."""
    folder = tmp_path_factory.mktemp("marked")
    mark = folder / "loaded"
    library = compile_program(folder / "model.so", f'-DLOADED_MARK="{mark}"')
    return Draft(library, extra={"src/a.cpp": b"int a;\n", "lib/other/libmycc.so": b"\x7fELF" * 100}).build(), mark


def refused(library: Any, data: bytes, match: str, **options: Any) -> None:
    with pytest.raises(LoadError, match=match):
        library.load_memory(data, **options)


def test_from_file_and_from_memory(library: Any, package: bytes, package_file: Path) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    expected = 2 * x + np.array([0.5, -1.0, 4.0, 8.0], np.float32)
    for loaded in (library.load_file(str(package_file)), library.load_memory(package), library.load_file(package_file)):
        np.testing.assert_array_equal(Loaded(loaded)("affine", x), expected)
        assert loaded.target == f"cpu:{ISA}"
        assert loaded.threads >= 1
        assert '"handmade"' in loaded.manifest


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_packages_of_earlier_versions_run(library: Any, tmp_path: Path, version: int) -> None:
    """Each version only adds to the code interface; programs for the CPU are what they were."""
    old = compile_program(tmp_path / "model.so", f"-DPROGRAM_VERSION={version}u")
    model = Loaded(library.load_memory(Draft(old, changes={"abi": version}).build()))
    np.testing.assert_array_equal(model("lookup", np.array([2, 0])), [4.0, 0.5])


def test_earlier_programs_get_bools_of_0_and_1_and_no_sizes_that_wrap(library: Any, tmp_path: Path) -> None:
    old = compile_program(tmp_path / "model.so", "-DPROGRAM_VERSION=4u")
    model = Loaded(library.load_memory(Draft(old, changes={"abi": 4}).build()))
    given = np.array([0, 1, 42, 255, 0, 2], np.uint8)
    for flags in (given.view(bool), np.repeat(given, 2).view(bool)[::2]):
        np.testing.assert_array_equal(model("flags", flags), [0, 1, 1, 1, 0, 1])
    for rows in (1, 3, 200):  # 32 MB, in small pieces
        np.testing.assert_array_equal(model("cube", np.full(rows, 2.5, np.float32)), np.full(rows, 2.5))
    for rows in (1 << 16, 1 << 20, 1 << 21, (1 << 21) + 5, 3 << 21):
        with pytest.raises(RunError, match=r"^out of memory: the tensors of cube take 281474976710656 bytes or more"):
            model("cube", np.ones(rows, np.float32))
    for rows in (1 << 13, 1 << 16, 3 << 16):
        with pytest.raises(RunError, match=r"^out of memory: the tensors of power take 281474976710656 bytes or more"):
            model("power", np.ones(rows, np.float32))


@pytest.mark.parametrize("version", [0, 6])
def test_programs_of_other_versions_are_refused(library: Any, tmp_path: Path, version: int) -> None:
    other = compile_program(tmp_path / "model.so", f"-DPROGRAM_VERSION={version}u")
    refused(library, Draft(other).build(), "model.so does not speak version 5 of the code interface")


@pytest.mark.parametrize(("name", "taken"), [("src/a.cpp", True), (f"lib/{ISA}/model.so", False)])
def test_sources_alone_may_be_deflated(library: Any, program: bytes, name: str, taken: bool) -> None:
    data = bytearray(Draft(program, extra={"src/a.cpp": b"int a;\n"}, exact=False).build())
    entry = data.rindex(name.encode()) - 46
    (start,) = struct.unpack_from("<I", data, entry + 42)
    for method in (entry + 10, start + 8):
        struct.pack_into("<H", data, method, 8)
    if taken:
        Loaded(library.load_memory(bytes(data)))
    else:
        refused(library, bytes(data), f"member {name} is compressed|{name}.*is compressed")


def test_file_may_go_while_it_is_loaded(library: Any, package: bytes, tmp_path: Path) -> None:
    path = tmp_path / "gone.pkg"
    path.write_bytes(package)
    model = Loaded(library.load_file(str(path)))
    path.unlink()
    assert model("lookup", np.array([2]))[0] == 4.0


def test_nothing_is_written_to_disk(library: Any, package_file: Path) -> None:
    model = library.load_file(str(package_file))
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:mycc" in line]
    assert mapped, "model.so should be mapped from memory"
    del model


def test_weights_come_in_huge_pages(library: Any, program: bytes, tmp_path: Path) -> None:
    """Where the system has them: what it is told stands in the mapping's flags."""
    path = tmp_path / "large.pkg"
    weights = np.zeros(2 << 20, np.float32)
    weights[: len(WEIGHTS)] = WEIGHTS
    path.write_bytes(Draft(program, weights=weights).build())
    model = library.load_file(str(path))
    flags, ours = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = line.endswith(str(path))
        elif ours and line.startswith("VmFlags:"):
            flags += line.split()
    if Path("/sys/kernel/mm/transparent_hugepage").exists() and flags:
        assert "hg" in flags
    del model


def test_unloading_gives_all_back(library: Any, package_file: Path) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:mycc")

    before, descriptors = mapped(), len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        Loaded(library.load_file(str(package_file)))("affine", np.ones((1, 4), np.float32))
    assert mapped() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_two_packages_keep_apart(library: Any, program: bytes) -> None:
    models = [
        Loaded(library.load_memory(Draft(program, weights=np.full(4, value, np.float32)).build()))
        for value in (1.0, 2.0, 3.0)
    ]
    x = np.zeros((1, 4), np.float32)
    assert [model("affine", x)[0, 0] for model in models] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("path", "match"),
    [("/nowhere/x.pkg", "cannot read /nowhere/x.pkg: No such file"), ("/tmp", "cannot read /tmp: Is a directory")],
)
def test_unreadable(library: Any, path: str, match: str) -> None:
    with pytest.raises(LoadError, match=match):
        library.load_file(path)


def test_empty_and_foreign_files(library: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.pkg"
    path.touch()
    with pytest.raises(LoadError, match=r"empty.pkg is empty"):
        library.load_file(str(path))
    refused(library, b"hello " * 100, "not a whole mycc package: there is no zip directory at its end")
    refused(library, archive({"a.txt": b"hi"}, b""), "is a zip file, but not a mycc package")


def test_truncated_anywhere(library: Any, marked: tuple[bytes, Path]) -> None:
    package, mark = marked
    mark.unlink(missing_ok=True)
    for part in range(50):
        refused(library, package[: len(package) * part // 50] or b"P", "not a whole mycc package")
    refused(library, package[:-1], "not a whole mycc package")
    refused(library, package + b"\0", "not a whole mycc package")
    assert not mark.exists()


def test_bit_flips_are_refused_before_code_runs(library: Any, marked: tuple[bytes, Path]) -> None:
    package, mark = marked
    mark.unlink(missing_ok=True)
    ranges = data_ranges(package)
    random = np.random.default_rng(0)
    for name, place in ranges.items():
        if name == "weights.safetensors":
            continue
        for position in {place.start, place.stop - 1, *random.integers(place.start, place.stop, 6).tolist()}:
            damaged = bytearray(package)
            damaged[position] ^= 1 << int(random.integers(8))
            refused(library, bytes(damaged), "does not match its hash|damaged or incomplete")
    assert not mark.exists()
    library.load_memory(package)
    assert mark.exists()


def test_flips_between_the_members(library: Any, marked: tuple[bytes, Path]) -> None:
    """Headers, padding and directory are exactly what mycc writes: no bit of them can change."""
    package, mark = marked
    mark.unlink(missing_ok=True)
    inside = np.zeros(len(package), bool)
    for place in data_ranges(package).values():
        inside[place.start : place.stop] = True
    positions = np.flatnonzero(~inside)
    random = np.random.default_rng(1)
    directory = package.index(b"PK\1\2")
    chosen = [p for p in positions if package[p] or p >= directory]
    for position in [*chosen, *random.choice(positions, 200).tolist()]:
        damaged = bytearray(package)
        damaged[position] ^= 1 << int(random.integers(8))
        refused(library, bytes(damaged), "damaged or incomplete|has the package format")
        with pytest.raises(LoadError):
            _ = Archive(damaged).manifest
    assert not mark.exists()


def test_weights_flip(library: Any, package: bytes) -> None:
    place = data_ranges(package)["weights.safetensors"]
    damaged = bytearray(package)
    damaged[place.start + 128 + 2] ^= 1
    library.load_memory(bytes(damaged))
    library.load_memory(package, check_full=True)
    refused(
        library,
        bytes(damaged),
        r"block 2 of weights.safetensors \(bytes 128 to 192\) does not match its hash",
        check_full=True,
    )
    damaged = bytearray(package)
    damaged[place.start] ^= 1
    refused(library, bytes(damaged), "the header of weights.safetensors has a wrong size")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": 2}, "has the package format 2; this mycc knows version 1\n  Use the mycc that built it"),
        ({"abi": 7}, "has the code interface 7; this mycc knows version 5"),
        ({"format": "1"}, "a version is missing"),
        ({"entry_points": []}, "manifest.json: entry_points has too few elements"),
        ({"entry_points": ENTRIES[:2]}, "model.so does not fit manifest.json"),
        ({"entry_points": None}, "manifest.json: entry_points is not a list"),
        ({"targets": [{}]}, r"manifest.json: targets\[0\].target is missing"),
        ({"members": {}}, "is not listed in manifest.json"),
        ({"members": {"src/none.cpp": {"size": 1, "sha256": "00"}}}, "member src/none.cpp is missing"),
        ({"weights": {}}, "manifest.json: weights.member is missing"),
        ({"name": 3}, "manifest.json: name is not what it has to be"),
    ],
)
def test_manifest_refusals(library: Any, program: bytes, changes: dict[str, Any], match: str) -> None:
    refused(library, Draft(program, changes=changes).build(), match)


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (("inputs", 0, "dtype"), "f99", r"entry_points\[0\].inputs\[0\].dtype is not what it has to be"),
        (("inputs", 0, "shape"), [1.5], r"inputs\[0\].shape\[0\] is not what it has to be"),
        (("inputs", 0, "shape"), [1] * 17, r"inputs\[0\].shape has too many elements"),
        (("inputs",), {}, r"entry_points\[0\].inputs is not a list"),
        (("symbols", 0, "dim"), 2, "a size symbol makes no sense"),
        (("symbols", 0, "input"), -1, r"symbols\[0\].input is not what it has to be"),
        (("symbols", 0, "scale"), 0, "a size symbol makes no sense"),
        (("symbols", 0, "max"), 0, "a size symbol makes no sense"),
        (("kernels",), 3, r"entry_points\[0\].kernels is not a list"),
        (("name",), "other", "does not fit manifest.json"),
    ],
)
def test_entry_refusals(library: Any, program: bytes, path: tuple[Any, ...], value: Any, match: str) -> None:
    import copy

    rows = copy.deepcopy(ENTRIES)
    place: Any = rows[0]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    refused(library, Draft(program, changes={"entry_points": rows}).build(), match)


def test_future_comment(library: Any, program: bytes) -> None:
    refused(library, Draft(program, version="12").build(), "has the package format 12; this mycc knows version 1")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[1,]", '{"a":1,}', "nul", "01", "1.", "1e", '"\\x"', '"\\ud800"', '"\\u0000"', '"a', "{} {}",
        "[" * 1000, '{"a" 1}', '"\t"', "-", "\xff",
    ],
)  # fmt: skip
def test_bad_json(library: Any, text: str) -> None:
    import hashlib

    raw = text.encode("latin-1")
    comment = f"mycc:1:{hashlib.sha256(raw).hexdigest()}".encode()
    refused(library, archive({"manifest.json": raw}, comment), "manifest.json: ")


def test_targets(library: Any, program: bytes) -> None:
    foreign = Draft(program, isas=["x86-64-v9", "riscv64"]).build()
    refused(
        library,
        foreign,
        "has no code for this CPU, which runs code up to .*; it holds cpu:x86-64-v9, cpu:riscv64\n"
        "  Compile the model with --target cpu:",
    )
    several = Draft(program, isas=["x86-64-v9", ISA, "riscv64"]).build()
    assert library.load_memory(several).target == f"cpu:{ISA}"
    assert library.load_memory(several, target=f"cpu:{ISA}").target == f"cpu:{ISA}"
    refused(
        library, several, "the target cpu:riscv64 does not run here: this CPU runs code up to", target="cpu:riscv64"
    )
    refused(library, several, "has no target cuda:sm_90; it holds cpu:x86-64-v9, cpu:", target="cuda:sm_90")


def test_best_target_wins(library: Any, program: bytes) -> None:
    levels = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v3+vnni", "x86-64-v4", "x86-64-v4+vnni", "x86-64-v4+amx"]
    levels = levels if ISA == "x86-64" else ["aarch64"]
    best = library.load_memory(Draft(program, isas=levels).build()).target
    flags = Path("/proc/cpuinfo").read_text().split()
    if ISA == "x86-64":
        expected = "x86-64-v4" if "avx512vl" in flags else "x86-64-v3" if "avx2" in flags else "x86-64-v2"
        byte_products = {"x86-64-v4": "avx512_vnni", "x86-64-v3": "avx_vnni"}.get(expected)
        expected += "+vnni" if byte_products in flags else ""
        if expected == "x86-64-v4+vnni" and {"avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"} <= cpu_flags():
            expected = "x86-64-v4+amx"
        assert best == f"cpu:{expected}"
    shuffled = library.load_memory(Draft(program, isas=levels[::-1]).build()).target
    assert shuffled == best


def test_library_that_is_none(library: Any) -> None:
    refused(library, Draft(b"this is no library" * 10).build(), "cannot load lib/.*/model.so: ")


def test_structural_damage(library: Any, program: bytes) -> None:
    good = Draft(program).build()
    members = {name: good[place.start : place.stop] for name, place in data_ranges(good).items()}
    comment = good[good.rindex(b"mycc:1:") :]
    assert archive(members, comment) == good
    refused(library, archive(members, comment, alignment=64), "is not aligned to 65536 bytes")
    refused(library, archive(members | {"extra": b"x"}, comment), "it is not the last member")
    older = Draft(program, exact=False).build()
    parts = {name: older[place.start : place.stop] for name, place in data_ranges(older).items()}
    refused(library, archive(parts | {"extra": b"x"}, older[older.rindex(b"mycc:1:") :]), "member extra is not listed")
    doubled = bytearray(good)
    start = doubled.rindex(b"PK\5\6")
    struct.pack_into("<2H", doubled, start + 8, 1, 1)
    refused(library, bytes(doubled), "its directory has a wrong size")


def test_options(library: Any, package: bytes) -> None:
    assert library.load_memory(package, threads=3).threads == 3
    refused(library, package, "threads has to be a number from 1", threads=-1)
    assert library.load_memory(package, threads=10**6).threads == 1023
    with pytest.raises(TypeError):
        library.load_memory("text")


def test_random_damage_never_crashes(library: Any, package: bytes) -> None:
    """Many bytes changed at once, mostly in the headers."""
    random = np.random.default_rng(7)
    directory = package.index(b"PK\1\2")
    for _ in range(300):
        damaged = bytearray(package)
        for _ in range(int(random.integers(1, 8))):
            low = directory if random.random() < 0.7 else 0
            damaged[int(random.integers(low, len(damaged)))] = int(random.integers(256))
        with contextlib.suppress(LoadError):  # nothing else may come out of it
            library.load_memory(bytes(damaged))
