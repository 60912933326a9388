"""The matrix and convolution kernels as built for every CPU target: no loop over k touches the stack, what epilogues
read and write is fetched ahead."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from mycc.compiler.machine.cpu import PANEL
from mycc.compiler.machine.targets import TARGETS, Target
from mycc.compiler.schedule.matrix.register_tiles import TILE_SETS, Tile
from mycc.compiler.schedule.matrix.run_tiles import RUN_TILE_SETS

from .gemm_support import built, cpu_levels

#: levels with register tiles of their own
CPU = [target for target in TARGETS if not target.level]
#: tiles that take every register: a converted vector of 16-bit weights, which no instruction reads from memory, is one
#: too many; so is the conversion of binary16 without an instruction for it
FULL = {"x86-64-v2": r"tile_", "x86-64-v3": r"tile_3x32"}
JUMP = re.compile(r"(?:j\w+|b(?:\.\w+)?|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s+([0-9a-f]+)\b")
MULTIPLY_ADD = re.compile(r"v?fmadd\d*ps|vfmadd\w+ps|v?mulps|fmla")


def cases(targets: list[Target]) -> list[Any]:
    """Targets as parameters: the best one that this CPU runs is compiled for other tests too; for another one it is
    slow."""
    best = cpu_levels()[-1:]
    return [pytest.param(t, id=t.isa, marks=[] if t.isa in best else [pytest.mark.slow]) for t in targets]


def tool(target: Target, name: str) -> str | None:
    return shutil.which(name if target.arch == "x86_64" else f"{target.arch}-linux-gnu-{name}")


@functools.cache
def disassembly(target: Target, source: str = "gemm_library.cpp") -> str:
    """The kernels of a source of this folder, built with the flags of a package for `target`."""
    compiler, objdump = tool(target, "g++"), tool(target, "objdump")
    if compiler is None or objdump is None:
        pytest.skip(f"no compiler for {target.arch}")
    with tempfile.TemporaryDirectory() as folder:
        out = built(source, target, Path(folder) / "kernels.so", compiler)
        command = [objdump, "-dC", "--no-show-raw-insn", str(out)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions(assembly: str, name: str) -> dict[str, list[tuple[int, str]]]:
    """Address and text of the instructions of every function whose signature matches."""
    found = {}
    for match in re.finditer(rf"^[0-9a-f]+ <([^\n]*\b{name}[^\n]*)>:\n(.*?)(?=^\n|\Z)", assembly, re.M | re.S):
        lines = re.finditer(r"^\s*([0-9a-f]+):\s+(.*)$", match[2], re.M)
        found[match[1]] = [(int(line[1], 16), line[2].strip()) for line in lines]
    return found


def innermost_loops(lines: list[tuple[int, str]]) -> list[list[str]]:
    """What each jump backwards spans, when no other such jump lies in between."""
    place = {address: i for i, (address, _) in enumerate(lines)}
    found: list[list[str]] = []
    start = 0  # behind the last jump backwards
    for i, (address, text) in enumerate(lines):
        jump = JUMP.match(text)
        first = place.get(int(jump[1], 16)) if jump else None
        if first is None or lines[first][0] >= address:
            continue
        if first >= start:
            found.append([text for _, text in lines[first : i + 1]])
        start = i + 1
    return found


def multiply_adds(loop: list[str]) -> int:
    return sum(bool(MULTIPLY_ADD.match(text)) for text in loop)


def unroll_factor(tile: Tile) -> int:
    return max((turn.length for turn in tile.unrolled), default=tile.sums)


def longest_loops(lines: list[tuple[int, str]]) -> list[list[str]]:
    """Innermost loops with the most multiply-adds: a tile has several where it fetches more or less."""
    loops = innermost_loops(lines)
    most = max(multiply_adds(loop) for loop in loops)
    return [loop for loop in loops if multiply_adds(loop) == most]


def touches_stack(text: str) -> bool:
    return bool(re.search(r"\(%rsp|-?0x[0-9a-f]+\(%rbp|\[(?:sp|x29)", text) or re.match(r"(?:push|pop|call)\b", text))


@pytest.mark.parametrize("target", cases(CPU))
def test_tiles_stay_in_registers(target: Target) -> None:
    assembly = disassembly(target)
    lanes, checked = TILE_SETS[target.isa].cpu.lanes, 0
    runs = RUN_TILE_SETS[target.isa].tiles
    turns = (
        {(t.runs, t.pixels, t.panels * PANEL): t.unroll for t in runs if not t.halved},
        {(tile.rows, tile.panels * PANEL): unroll_factor(tile) for tile in TILE_SETS[target.isa].tiles},
    )
    for name, lines in functions(assembly, r"(?:tile|runs)_\d+x").items():
        if re.search("half|bfloat", name) and target.isa in FULL and re.search(FULL[target.isa], name):
            continue
        sizes = [int(size) for size in re.findall(r"(?:tile|runs)_([\dx]+)", name)[0].split("x")]
        products = 1
        for size in sizes:
            products *= size
        turn = turns["tile_" in name].get(tuple(sizes), 1)
        for loop in longest_loops(lines):
            stack = [text for text in loop if touches_stack(text)]
            assert not stack, f"{name} for {target.isa} touches the stack: {stack}"
            assert multiply_adds(loop) == turn * products // lanes, f"{name} for {target.isa} has another loop: {loop}"
        checked += 1
    assert checked > len(TILE_SETS[target.isa].tiles), "the tiles of products in float32 and 16 bits, of convolutions"


@pytest.mark.parametrize("target", cases([t for t in CPU if RUN_TILE_SETS[t.isa].taps]))
def test_taps_stay_in_registers(target: Target) -> None:
    """A pixel is broadcast for all its products, and those with zeros at the ends of a row are left out."""
    table = {tile.name: tile for tile in RUN_TILE_SETS[target.isa].tap_tiles}
    tiles = functions(disassembly(target), r"taps_\d+_")
    assert len(tiles) == len(table)
    for signature, lines in tiles.items():
        tile = table[re.findall(r"taps_\w+", signature)[0]]
        zeros = sum(range(tile.front + 1)) + sum(range(tile.back + 1))
        for loop in longest_loops(lines):
            stack = [text for text in loop if touches_stack(text)]
            assert not stack, f"{signature} for {target.isa} touches the stack: {stack}"
            assert multiply_adds(loop) == tile.taps * tile.pixels - zeros
            broadcasts = sum(text.startswith("vbroadcastss") or "{1to16}" in text for text in loop)
            assert 0 < broadcasts <= len(tile.products)


@pytest.mark.parametrize("target", cases([t for t in CPU if t.lanes == PANEL]))
def test_one_panel_multiplies_from_memory(target: Target) -> None:
    """A broadcast that one multiply-add uses is its operand: into a register it takes a multiply-add's place (0084)."""
    tiles = functions(disassembly(target), r"runs_\d+x(?:[4-9]|\d\d)x16\b")
    assert len(tiles) == sum(tile.panels == 1 and tile.pixels >= 4 for tile in RUN_TILE_SETS[target.isa].tiles)
    for name, lines in tiles.items():
        for loop in longest_loops(lines):
            apart = [text for text in loop if text.startswith("vbroadcastss")]
            assert not apart, f"{name} for {target.isa} broadcasts apart from its products: {apart}"


@pytest.mark.parametrize("target", cases(CPU))
def test_tiles_prefetch_their_results(target: Target) -> None:
    """Places of results that no general register is left for would be moved out of a vector's for every k."""
    tiles = functions(disassembly(target), r"tile_\d+x\d+<float>")
    table = {(t.rows, t.panels * PANEL): t for t in TILE_SETS[target.isa].tiles}
    assert len(tiles) == len(table)
    for name, lines in tiles.items():
        rows, columns = (int(size) for size in re.findall(r"tile_(\d+)x(\d+)<", name)[0])
        tile, loops = table[rows, columns], longest_loops(lines)
        fetched = [sum(bool(re.match(r"prefetchw|prfm\s+pstl1keep", text)) for text in loop) for loop in loops]
        streams = 2 if tile.sums > 1 and tile.panels == 1 else 0  # loops of one, in a cache and in memory
        wanted = [2 if turn.results else 0 for turn in tile.unrolled if len(tile.unrolled) > 1] or [int(tile.fetches)]
        wanted += [0] * streams
        assert sorted(fetched) == sorted(wanted), f"{name} for {target.isa}: {fetched}"
        for loop in loops:
            moved = [text for text in loop if re.match(r"v?mov[qd]\s.*%xmm|fmov\s", text)]
            assert not moved, f"{name} for {target.isa} moves between kinds of registers: {moved}"


@pytest.mark.parametrize("target", cases([t for t in CPU if TILE_SETS[t.isa].row_sums > 1]))
def test_a_row_prefetches_each_line_of_its_panel_once(target: Target) -> None:
    """Into the first cache, in the loops of a panel that is a stream by itself: past the others where it comes from
    memory (0102); with float32 not in the third loop (0087)."""
    tiles = functions(disassembly(target), r"tile_1x16<")
    assert len(tiles) == 3, "of float32, bfloat16 and float16"
    for name, lines in tiles.items():
        floats, loops = "<float>" in name, longest_loops(lines)
        fetched = {
            kind: sorted(sum(text.startswith(f"prefetch{kind}") for text in loop) for loop in loops)
            for kind in ("t0", "nta", "t1")
        }
        lines_of_iteration = 4 if floats else 2
        stream = [0, 0, lines_of_iteration]
        assert fetched == {"t0": stream, "nta": stream, "t1": [0, 0, 0] if floats else [0, 0, 2]}, name


@pytest.mark.parametrize("target", cases(CPU))
def test_nchw_tiles_stay_in_registers(target: Target) -> None:
    """Every vector of inputs is loaded once for all outputs of the tile."""
    tiles = functions(disassembly(target), r"nchw_tile<")
    assert len(tiles) > 8
    for name, lines in tiles.items():
        outputs, vectors = (int(size) for size in re.findall(r"nchw_tile<(\d+), (\d+)>", name)[0])
        loop = max(innermost_loops(lines), key=multiply_adds)
        stack = [text for text in loop if touches_stack(text)]
        assert not stack, f"{name} for {target.isa} touches the stack: {stack}"
        assert multiply_adds(loop) == outputs * vectors, f"{name} for {target.isa} has another loop: {loop}"
        moved = [text for text in loop if re.match(r"v?mov[ua]ps\s+\S*\(|ld[rp]\s+q", text)]
        assert len(moved) <= vectors + 1, f"{name} for {target.isa} loads its inputs again: {loop}"


@pytest.mark.parametrize("target", cases(CPU))
def test_attention_makes_weights_in_registers(target: Target) -> None:
    """The loop that multiplies values and makes weights of the next scores: two keys of 8 rows by 1 or 2 panels."""
    tiles = functions(disassembly(target, "attention_library.cpp"), "weight_tile_")
    panels = TILE_SETS[target.isa].value_panels
    assert {int(re.findall(r"weight_tile_8x(\d+)", name)[0]) for name in tiles} == {16 * p for p in panels}
    for name, lines in tiles.items():
        loop = max(innermost_loops(lines), key=multiply_adds)
        stack = [text for text in loop if touches_stack(text)]
        assert not stack, f"{name} for {target.isa} touches the stack: {stack}"
        assert multiply_adds(loop) >= 2 * 8 * int(re.findall(r"8x(\d+)", name)[0]) // 16, (
            f"{name} has another loop: {loop}"
        )
        assert any("vperm" in text for text in loop), f"{name} takes powers from no table: {loop}"


@pytest.mark.parametrize("target", cases(CPU))
def test_residuals_are_prefetched(target: Target) -> None:
    """The compiler takes a function that only prefetches for one without effects, and deletes its calls."""
    blocks = functions(disassembly(target, "residual.cpp"), "multiply_block")
    assert blocks
    for name, lines in blocks.items():
        assert any(re.match(r"prefetcht0|prfm\s+pldl1keep", text) for _, text in lines), name


def test_a_loop_that_spills_is_found() -> None:
    assembly = """
0000000000000010 <void mycc::tile_1x16<float>(x)>:
  10:\tmov    (%rdi),%rax
  14:\tvfmadd231ps %zmm0,%zmm1,%zmm2
  18:\tvmovaps %zmm2,-0x40(%rsp)
  1c:\tjne    14 <f+0x4>
  20:\tjne    10 <f>

"""
    ((name, lines),) = functions(assembly, r"tile_\d+x").items()
    (loop,) = innermost_loops(lines)
    assert "tile_1x16" in name
    assert multiply_adds(loop) == 1
    assert any(map(touches_stack, loop))
