"""Kernels of products with integer weights on every level: natively, and those of aarch64 under qemu."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from mycc.compiler.machine.local_cpu import machine
from mycc.compiler.machine.targets import TARGETS, Target, runs_here

from ..helpers.libraries import compiled
from .gemm_support import FLAGS, HERE, INCLUDES, WARNINGS, own_headers

#: levels whose kernels are those of others but for a few instructions, which the operators' tests run as well
OTHERS = ("x86-64-v2", "x86-64-v3+vnni")
CASES = [pytest.param(t, id=t.isa, marks=pytest.mark.slow if t.isa in OTHERS else []) for t in TARGETS]
#: instructions that a level's products must have
WANTED = {
    "x86-64-v3": "vpmaddwd",
    "x86-64-v3+vnni": "vpdpbusd",
    "x86-64-v4": "vpmaddwd",
    "x86-64-v4+vnni": "vpdpbusd",
    "x86-64-v4+amx": "tdpbsud",
}


TILED = next(t for t in TARGETS if t.isa == "x86-64-v4+amx")


def test_products_by_tiles_are_exact_where_cpp_stands_for_their_instructions(tmp_path: Path) -> None:
    """Everywhere; the shapes of tiles are kept, so what is read beyond them is wrong or a fault."""
    command = ["g++", *FLAGS, *WARNINGS, "-fsanitize=address,undefined", "-DMYCC_AMX_IN_CPP", *INCLUDES, "-pthread"]
    level = "aarch64" if machine() == "aarch64" else "x86-64-v2"
    program = compiled(command, (HERE / "tiles_check.cpp").read_text(), own_headers(level), tmp_path / "check")
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong" in done.stdout


@pytest.mark.skipif(machine() != "x86_64", reason="VNNI is x86-64's")
def test_products_of_fours_are_exact_where_cpp_stands_for_their_instructions(tmp_path: Path) -> None:
    """Nothing is read in front of rows or behind them, either."""
    target = next(t for t in TARGETS if t.isa == "x86-64-v3")
    if not runs_here(target):
        pytest.skip(f"this CPU has not all of {target.isa}")
    checked = ["-fsanitize=address,undefined", "-DMYCC_VNNI_IN_CPP"]
    command = ["g++", *FLAGS, *WARNINGS, *target.flags, *checked, *INCLUDES, "-pthread"]
    source = (HERE / "quantised_check.cpp").read_text()
    program = compiled(command, source, own_headers(target.isa), tmp_path / "check")
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong" in done.stdout


@pytest.mark.skipif(machine() != "x86_64", reason="AMX is x86-64's")
def test_products_by_tiles_are_exact(tmp_path: Path) -> None:
    command = ["g++", *FLAGS, *WARNINGS, *TILED.flags, *INCLUDES, "-static", "-pthread"]
    program = compiled(command, (HERE / "tiles_check.cpp").read_text(), own_headers(TILED.tiles), tmp_path / "check")
    text = subprocess.run(["objdump", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    assert "tdpbsud" in text
    assert "tilerelease" in text
    if not runs_here(TILED):
        pytest.skip(f"compiled, but this CPU has not all of {TILED.isa}")
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("target", CASES)
def test_products_are_exact(target: Target, tmp_path: Path) -> None:
    compiler, runner = "g++", []
    if target.arch != machine():
        qemu, compiler = shutil.which("qemu-aarch64-static"), "aarch64-linux-gnu-g++"
        if target.arch != "aarch64" or qemu is None or shutil.which(compiler) is None:
            pytest.skip(f"{target.isa} needs qemu-aarch64-static and aarch64-linux-gnu-g++")
        runner = [qemu, "-cpu", "max"]
    elif not runs_here(target):
        pytest.skip(f"this CPU has not all of {target.isa}")
    command = [compiler, *FLAGS, *WARNINGS, *target.flags, *INCLUDES, "-static", "-pthread"]
    source = (HERE / "quantised_check.cpp").read_text()
    program = compiled(command, source, own_headers(target.tiles), tmp_path / "check")
    done = subprocess.run([*runner, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    if target.isa in WANTED:
        text = subprocess.run(["objdump", "-d", str(program)], capture_output=True, text=True, check=True).stdout
        assert WANTED[target.isa] in text
