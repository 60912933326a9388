"""The header and the units that hold the register tiles of the GEMM family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...machine.cpu import DEPTHWISE_PIXELS, DEPTHWISE_TAPS, LINE, PANEL
from ...schedule.matrix.register_tiles import TILE_SETS, TileSet, widths
from ...schedule.matrix.run_tiles import RUN_TILE_SETS, RunTileSet
from ..environments import environment

#: the letter of vector registers in inline assembly
CONSTRAINTS = {"x86-64-v2": "x", "x86-64-v3": "x", "x86-64-v4": "v", "aarch64": "w"}


def render_micro_kernels(isa: str, bodies: bool = True) -> str:
    """The text of micro_kernels.h (included by kernels/gemm/gemm.h) for an instruction set level.

    isa: one of TILE_SETS; bodies: with the tiles, else render_tile_units has them. Raises ValueError for another level.
    """
    if isa not in TILE_SETS:
        raise ValueError(f"no GEMM tiles for {isa!r}; there are tiles for {', '.join(TILE_SETS)}")
    return render_tile_set(isa, TILE_SETS[isa], RUN_TILE_SETS[isa], bodies)


def render_tile_units(isa: str, elements: Sequence[str], convolutions: bool) -> dict[str, str]:
    """Translation units of the register tiles, by name: they are compiled once, however many units call them, and their
    texts are the same for every model.

    elements: C++ types that panels of products are stored in; convolutions: whether there are any.
    """
    found: dict[str, tuple[str, tuple[str, ...]]]
    found = {f"tiles_{e}.cpp": ("gemm_tiles.cpp.j2", (e,)) for e in elements}
    if convolutions:
        found["tiles_conv.cpp"] = ("conv_tiles.cpp.j2", ())
    facts = _facts(isa, TILE_SETS[isa], RUN_TILE_SETS[isa])
    template = environment("cpu").get_template("tiles.cpp.j2")
    return {
        name: template.render(**facts, tiles_template=tiles, elements=types, linkage="")
        for name, (tiles, types) in found.items()
    }


def render_tile_set(isa: str, tile_set: TileSet, runs: RunTileSet, bodies: bool = True) -> str:
    """The header for tile sets of one's own (tests and benchmarks try others than those of the tables)."""
    template = environment("cpu").get_template("micro_kernel.h.j2")
    return template.render(**_facts(isa, tile_set, runs), bodies=bodies, elements=(), linkage="inline ")


def _facts(isa: str, tile_set: TileSet, runs: RunTileSet) -> dict[str, Any]:
    """What the templates of tiles are told."""
    return {
        "isa": isa,
        "lanes": tile_set.cpu.lanes,
        "constraint": CONSTRAINTS[tile_set.cpu.name],
        "max_rows": len(tile_set.panels),
        "tiles": tile_set.tiles,
        "in_place": any(t.unrolled for t in runs.tiles),
        "row_widths": sorted({t.panels * PANEL // tile_set.cpu.lanes for t in tile_set.tiles if t.in_place}),
        "line": LINE,
        "best": tile_set.panels,
        "row_sums": tile_set.row_sums,
        "widths": [widths(p) for p in tile_set.panels],
        "vectors": PANEL // tile_set.cpu.lanes,
        "value_rows": len(tile_set.panels) if tile_set.value_panels else 0,
        "value_panels": tile_set.value_panels,
        "taps": DEPTHWISE_TAPS,
        "pixels": DEPTHWISE_PIXELS,
        "run_tiles": runs.tiles,
        "max_runs": runs.runs,
        "run_panels": runs.panels,
        "long_run": runs.long_run,
        "tap_tiles": runs.tap_tiles,
        "tap_rows": runs.taps,
    }
