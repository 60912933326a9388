from __future__ import annotations

import re
from pathlib import Path

import pytest
from mycc.compiler.build.runtime_library import runtime_files
from mycc.compiler.machine import local_cpu
from mycc.compiler.machine.targets import (
    CUDA_TARGETS,
    TARGETS,
    host_target,
    parse_targets,
    runs_here,
    runs_on,
    target_folder,
)
from mycc.runtime.errors import CompileError

V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"})
V3 = V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
AMX = frozenset({"avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"})


def test_a_list_keeps_its_order_and_names_each_target_once() -> None:
    found = parse_targets("cpu:aarch64, cpu:x86-64-v3,cpu:aarch64")
    assert [target.name for target in found] == ["cpu:aarch64", "cpu:x86-64-v3"]
    assert [target.isa for target in found] == ["aarch64", "x86-64-v3"]
    assert [target.lanes for target in found] == [4, 8]


def test_cpu_is_recorded_by_its_full_name() -> None:
    (target,) = parse_targets("cpu")
    assert target == host_target()
    assert target.name in [known.name for known in TARGETS]
    assert target.arch == local_cpu.machine()


def test_cpu_beside_its_own_name_is_one_target() -> None:
    assert parse_targets(f"cpu,{host_target().name}") == (host_target(),)


@pytest.mark.parametrize(
    ("flags", "isa"),
    [
        (V2, "x86-64-v2"),
        (V3, "x86-64-v3"),
        (V4, "x86-64-v4"),
        (V3 | {"avx_vnni"}, "x86-64-v3+vnni"),
        (V4 | {"avx_vnni"}, "x86-64-v4"),
        (V4 | {"avx512_vnni"}, "x86-64-v4+vnni"),
        (V4 | AMX, "x86-64-v4+amx"),
        (V4 | AMX - {"amx_int8"}, "x86-64-v4+vnni"),
        (V4 | AMX - {"avx512_vnni"}, "x86-64-v4"),
        (V4 - {"fma"}, "x86-64-v2"),
        (V4 - {"avx512cd"}, "x86-64-v3"),
    ],
)
def test_a_level_needs_all_of_its_features(flags: frozenset[str], isa: str) -> None:
    assert host_target("x86_64", flags).isa == isa


def test_a_level_needs_the_kernels_leave_to_use_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text(f"processor\t: 0\nflags\t\t: {' '.join(sorted(V4 | AMX))}\n")
    monkeypatch.setattr(local_cpu, "_may_use_tiles", lambda: True)
    assert host_target("x86_64", local_cpu.cpu_flags(told)).isa == "x86-64-v4+amx"
    monkeypatch.setattr(local_cpu, "_may_use_tiles", lambda: False)
    assert host_target("x86_64", local_cpu.cpu_flags(told)).isa == "x86-64-v4+vnni"
    assert local_cpu.withheld_flags(told) == {"amx_tile", "amx_int8", "amx_bf16"}


def test_levels_of_integer_products_share_the_tiles_of_those_below() -> None:
    wide, short = parse_targets("cpu:x86-64-v4+vnni,cpu:x86-64-v3+vnni")
    assert (wide.isa, wide.tiles, wide.lanes) == ("x86-64-v4+vnni", "x86-64-v4", 16)
    assert (short.isa, short.tiles, short.lanes) == ("x86-64-v3+vnni", "x86-64-v3", 8)
    assert "-mavx512vnni" in wide.flags
    assert "-mavxvnni" in short.flags
    (tiled,) = parse_targets("cpu:x86-64-v4+amx")
    assert (tiled.isa, tiled.tiles) == ("x86-64-v4+amx", "x86-64-v4")
    assert {"-mavx512vnni", "-mamx-int8", "-mamx-bf16"} <= set(tiled.flags)
    assert runs_on(wide.name, tiled)
    assert not runs_on(tiled.name, wide)
    assert not runs_on(short.name, wide)  # there are CPUs with the wide form alone
    assert runs_on("cpu:x86-64-v3", short)


def test_levels_of_aarch64() -> None:
    assert host_target("aarch64", frozenset({"asimd"})).name == "cpu:aarch64"
    assert host_target("aarch64", frozenset({"asimd", "atomics", "asimddp"})).name == "cpu:aarch64+dotprod"
    plain, dotprod = parse_targets("cpu:aarch64,cpu:aarch64+dotprod")
    assert (dotprod.isa, dotprod.tiles) == ("aarch64+dotprod", "aarch64")
    assert runs_on(plain.name, dotprod)
    assert not runs_on(dotprod.name, plain)
    assert not runs_on(plain.name, host_target("x86_64", V4))


def test_a_cpu_below_every_level_is_refused() -> None:
    with pytest.raises(CompileError, match=r"below x86-64-v2, .* it lacks sse4_2"):
        host_target("x86_64", V2 - {"sse4_2"})


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(CompileError, match="riscv64, has no target"):
        host_target("riscv64", frozenset())


@pytest.mark.parametrize("text", ["cuda:sm_75", "cpu:x86-64-v5", "cpu,avx2"])
def test_an_unknown_target_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(CompileError, match=f"unknown target '{text.split(',')[-1]}'") as error:
        parse_targets(text)
    for target in (*TARGETS, *CUDA_TARGETS):
        assert target.name in str(error.value)


def test_targets_of_gpus() -> None:
    cpu, gpu, portable = parse_targets("cpu:x86-64-v3,cuda:sm_90,cuda:ptx")
    assert [t.family for t in (cpu, gpu, portable)] == ["cpu", "cuda", "cuda"]
    assert (gpu.capability, gpu.sms, gpu.ptx, gpu.isa) == (90, 132, False, "cuda-sm_90")
    assert portable.ptx
    assert gpu.arch == local_cpu.machine()  # of its host program
    assert [target_folder(t.name) for t in (cpu, gpu, portable)] == ["x86-64-v3", "cuda-sm_90", "cuda-ptx"]


def test_the_gpu_at_hand_needs_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mycc.compiler.machine.local_gpu._DRIVER", "libcuda-that-is-not-there.so")
    with pytest.raises(CompileError, match="there is no driver"):
        parse_targets("cuda")
    assert not runs_here(parse_targets("cuda:sm_90")[0])
    assert runs_here(host_target())


@pytest.mark.parametrize(
    ("capability", "target"), [(80, "cuda:sm_80"), (90, "cuda:sm_90"), (86, "cuda:ptx"), (120, "cuda:ptx")]
)
def test_the_gpu_at_hand_has_its_own_target_or_ptx(
    capability: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mycc.compiler.machine.local_gpu.compute_capability", lambda: capability)
    assert [t.name for t in parse_targets("cuda")] == [target]
    assert runs_here(parse_targets(target)[0])
    assert runs_here(parse_targets("cuda:sm_100")[0]) == (capability == 100)


@pytest.mark.parametrize("text", ["", " , "])
def test_no_target_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match="no target is named"):
        parse_targets(text)


def test_gcc_uses_all_of_avx_512() -> None:
    (target,) = parse_targets("cpu:x86-64-v4")
    assert target.flags == ("-march=x86-64-v4", "-mprfchw", "-mno-mmx", "-mprefer-vector-width=512")


def test_cpu_flags_of_both_architectures(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert local_cpu.cpu_flags(info) == {"fpu", "sse4_2", "avx2"}
    info.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert local_cpu.cpu_flags(info) == {"fp", "asimd"}
    assert local_cpu.cpu_flags(tmp_path / "nothing") == frozenset()


def test_cores_are_cut_by_a_containers_quota(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    everything = local_cpu.available_cores(tmp_path / "nothing")
    assert everything >= 1
    quota.write_text("max 100000\n")
    assert local_cpu.available_cores(quota) == everything
    quota.write_text("50000 100000\n")
    assert local_cpu.available_cores(quota) == 1


def test_a_cross_compiled_runtime_has_the_sources_of_the_installed_one() -> None:
    root = Path(__file__).parents[2]
    text = (root / "CMakeLists.txt").read_text()
    listed = {name for name in re.findall(r"runtime/src/[\w/]+\.cpp", text) if "/python/" not in name}
    found = {path.relative_to(root).as_posix() for path in runtime_files() if path.suffix == ".cpp"}
    assert found == listed
