"""The tuner of GPU kernels, over a GPU that is not there: its driver is a table of times."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.ir.plans.tiles import AttentionTile, GemmTile
from mycc.compiler.machine.gpu import device_of
from mycc.compiler.machine.targets import CUDA_TARGETS
from mycc.compiler.tune.choices.choices import COST_MODEL, Choice
from mycc.compiler.tune.search import gpu_search, stage
from mycc.compiler.tune.search.gpu_driver import GraphLaunch, Kernel
from mycc.compiler.tune.search.gpu_space import choice_of, tile_of
from mycc.compiler.tune.search.lock import Lock, LockedKernel, read_lock
from torch import nn

SM_90 = next(target for target in CUDA_TARGETS if target.name == "cuda:sm_90")
TILES = (GemmTile(64, 64, 64), GemmTile(16, 64, 64, split=2), GemmTile(32, 32, 64, descriptors=True, specialize=True))
FAST, SLOW, PLAIN = 5.0, 30.0, 10.0


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class FakeGpu:
    """Memory is a counter; kernels are known by their symbols."""

    name = "none"

    def __init__(self) -> None:
        self.next, self.symbols = 4096, dict[int, str]()

    def allocate(self, size: int) -> int:
        start, self.next = self.next, self.next + -(-size // 256) * 256
        return start

    def write(self, address: int, data: bytes) -> None:
        assert 4096 <= address <= self.next - len(data)
        assert data

    def read(self, address: int, size: int) -> bytearray:
        return bytearray(size)

    def load(self, symbol: str, image: bytes, threads: int, shared: int, dependent: bool) -> Kernel:
        assert image.startswith(b"\x7fELF")
        self.symbols[len(self.symbols) + 1] = symbol
        return Kernel(len(self.symbols), threads, shared, dependent)

    def close(self) -> None:
        pass


class FakeGraph:
    """Takes FAST for a kernel of 64 x 64, SLOW for one of two parts, PLAIN for all others."""

    def __init__(self, gpu: FakeGpu, launches: Sequence[GraphLaunch]) -> None:
        symbols = [gpu.symbols[launch.kernel.function] for launch in launches]
        assert all(len(arg) in (4, 8) for launch in launches for arg in launch.args)
        assert all(extent > 0 for launch in launches for extent in launch.grid)
        self.us = sum(FAST if "64x64x64" in s else SLOW if "_s2" in s else PLAIN for s in symbols)

    def time(self, runs: int) -> float:
        return self.us

    def close(self) -> None:
        pass


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, Lock]:
    """The package of Mlp, tuned over the fake, and its lock."""
    monkeypatch.setattr(gpu_search, "Gpu", FakeGpu)
    monkeypatch.setattr(gpu_search, "Graph", FakeGraph)
    monkeypatch.setattr(gpu_search, "tile_candidates", lambda node, device: TILES)
    monkeypatch.setattr(stage, "runs_here", lambda target: True)
    out = tmp_path / "mlp.pkg"
    compile_mlp(out, tune=True)
    return out, read_lock(out.with_name("mlp.pkg.lock"))


def compile_mlp(out: Path, **options: Any) -> None:
    torch.manual_seed(1)
    mycc.compile(Mlp(), (torch.randn(32, 64),), out=out, target="cuda:sm_90", dtype="bf16", verify=False, **options)


def test_the_fastest_tile_of_each_kernel_is_kept(tuned: tuple[Path, Lock]) -> None:
    _, lock = tuned
    rows = lock.targets["cuda:sm_90"]
    assert len(rows) == 2
    for row in rows.values():
        assert row.choice == choice_of(TILES[0])
        assert [trial.us for trial in row.tried[2:]] == [row.tried[1].us + SLOW - FAST, None]  # type: ignore[operator]
    assert lock.run_us == {"cost_model": 2 * PLAIN, "chosen": 2 * FAST}
    assert lock.machine["gpu"] == "none"


def test_a_lock_is_followed_without_a_gpu(tuned: tuple[Path, Lock], tmp_path: Path) -> None:
    path, _ = tuned
    again = tmp_path / "again.pkg"
    compile_mlp(again, lock=path.with_name("mlp.pkg.lock"))
    for package in (path, again):
        with zipfile.ZipFile(package) as archive:
            launches = json.loads(archive.read("manifest.json"))["entry_points"][0]["launches"]["cuda:sm_90"]
        assert ["64x64x64" in row["name"] for row in launches] == [True, True]


def test_tiles_and_choices_are_the_same() -> None:
    for tile in (*TILES, AttentionTile(128, 64, descriptors=True)):
        key = "attention f16" if isinstance(tile, AttentionTile) else "gemm-unpacked f16"
        assert tile_of(key, choice_of(tile)) == tile
    assert tile_of("gemm", COST_MODEL) is None


@pytest.mark.parametrize("choice", [Choice.of({"m": 64}), Choice.of({"m": 64, "n": 64, "k": 64, "depth": 2})])
def test_what_is_no_tile_is_refused(choice: Choice) -> None:
    with pytest.raises(ValueError, match="no tile"):
        tile_of("gemm-unpacked bf16", choice)


def test_a_tile_that_does_not_fit_is_an_error(tuned: tuple[Path, Lock], tmp_path: Path) -> None:
    path, lock = tuned
    rows = {key: LockedKernel(choice_of(TILES[2])) for key in lock.targets["cuda:sm_90"]}
    from mycc.compiler.tune.search.lock import write_lock

    write_lock(replace(lock, targets={"cuda:sm_90": rows}), path.with_name("wrong.lock"))
    with pytest.raises(mycc.CompileError, match="tile that the lock chooses"):
        compile_mlp(tmp_path / "wrong.pkg", lock=path.with_name("wrong.lock"))


def test_without_a_gpu_nothing_is_tuned(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, so tuning for it is no error")
    with pytest.raises(mycc.CompileError, match="this machine runs none of cuda:sm_90"):
        compile_mlp(tmp_path / "none.pkg", tune=True)


def test_candidates_fit_their_nodes() -> None:
    from mycc.compiler.codegen.cuda.generate import launches_of
    from mycc.compiler.codegen.cuda.probe import attention_probe, conv_probe, gemm_probe, pair_probe
    from mycc.compiler.ir.structured import Window
    from mycc.compiler.tune.search.gpu_candidates import tile_candidates

    window = Window((3, 3), (1, 1), (1, 1), (1, 1), 1)
    probes = [
        *(gemm_probe(m, 3072, 768, "bf16", bias=True, activation="gelu_erf") for m in (1, 16, 128, 2048)),
        pair_probe(2048, 512, 768, "bf16"),
        *(attention_probe(1, 4, n, n, 64, "bf16", causal=n == 128) for n in (4, 128, 512)),
        *(conv_probe(b, (14, 14), 64, 64, window, "bf16", residual=True) for b in (1, 32)),
        conv_probe(32, (14, 14), 64, 256, Window((1, 1), (1, 1), (0, 0), (1, 1), 1), "bf16"),
    ]
    device = device_of(90)
    for probe in probes:
        tiles = tile_candidates(probe.node, device)
        assert 2 <= len(tiles) <= 40
        for tile in tiles:
            assert launches_of(probe.node, device, "kernel", tile)
