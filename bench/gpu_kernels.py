"""The matrix kernels on a GPU: candidate tiles of each shape against cuBLAS, SDPA and cuDNN in one run, in CUDA graphs.

    python gpu_kernels.py OUT [section ...]     # skinny gemm other slices prompts attention conv float; all by default

Weights are cold: a graph holds as many copies of a product as their weights need to fill the L2 cache twice; the time
is that of the graph over its copies. Each candidate is compared with float64 before it is timed. OUT gets all that
was measured (results.json) and the fastest tile of each shape (tiles_sm90.json, the form that ships with mycc). Needs
torch and triton, and mycc importable; no network. With --chosen it measures the tiles that packages have.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from mycc.compiler.codegen.cuda.generate import launches_of
from mycc.compiler.codegen.cuda.probe import Probe, attention_probe, conv_probe, gemm_probe, pair_probe
from mycc.compiler.ir.dtypes import to_torch
from mycc.compiler.ir.plans.tiles import AttentionTile, GemmTile
from mycc.compiler.ir.structured import Gemm, Window
from mycc.compiler.machine.gpu import H200, Device
from mycc.compiler.schedule.gpu.fit import misfit
from mycc.compiler.schedule.gpu.product_plans import chosen_tile
from mycc.compiler.schedule.gpu.tiles import Shape as ProductShape
from mycc.compiler.schedule.gpu.tiles import conv_shape, estimate
from mycc.compiler.tune.search.gpu_candidates import (
    attention_tiles,
    conv_tiles,
    large_tiles,
    middle_tiles,
    of_pair,
    skinny_tiles,
    tile_candidates,
)

#: the chip that is measured
CHIP = H200
CAPABILITY = CHIP.capability
FOLDER = Path(tempfile.gettempdir()) / "gpu_kernels"
COLD = 130e6  # bytes of weights that a graph goes through
FINALISTS, TURNS = 4, 7  # the peer and the fastest candidates, which are timed again in turns
#: error of a product against float64, relative in the norm
TOLERANCE = {"bf16": 6e-3, "f16": 1e-3, "f32": 3e-6, "tf32": 2e-3}
Tile = GemmTile | AttentionTile


@dataclass(frozen=True)
class Shape:
    """A shape: what to build, the peer, and the tiles to try. flops and bytes of one product."""

    kind: str
    label: str
    probe: Probe
    key: dict[str, Any]
    peer: Callable[[dict[str, torch.Tensor]], list[Callable[[], torch.Tensor]]]
    tiles: tuple[Tile, ...]
    flops: float
    bytes: float
    float32: str = "ieee"

    def device(self) -> Device:
        return replace(CHIP, float32=self.float32)


# kernels -------------------------------------------------------------------------------------------------------------
def options(kernel: Any) -> dict[str, Any]:
    from types import SimpleNamespace

    from mycc.compiler.build.triton_compile import kernel_options

    return kernel_options(kernel, SimpleNamespace(ptx=False, capability=CAPABILITY))  # type: ignore[arg-type]


@cache
def compiled(kernel: Any) -> Any:
    """The kernel as a package has it, through Triton's cache on the disk."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as triton_compile

    FOLDER.mkdir(exist_ok=True)
    digest = hashlib.sha256(f"{kernel.source}{kernel.num_warps}{kernel.num_stages}".encode()).hexdigest()
    name = f"{kernel.symbol}_{digest[:16]}"
    path = FOLDER / f"{name}.py"
    path.write_text(kernel.source.replace("KERNEL", kernel.symbol), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    attrs = {(i,): [["tt.divisibility", p.divisor]] for i, p in enumerate(kernel.params) if p.divisor % 16 == 0}
    signature = {p.name: p.type for p in kernel.params}
    source = ASTSource(getattr(module, kernel.symbol), signature, {}, attrs)
    return triton_compile(source, GPUTarget("cuda", CAPABILITY, 32), options(kernel))


def _compile(kernel: Any) -> str:
    try:
        compiled(kernel)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]}"
    return ""


class Runner:
    """A launch bound to memory."""

    def __init__(self, launches: Iterable[Any], memory: dict[Any, torch.Tensor], shared: dict[str, torch.Tensor]):
        self.steps = []
        self.registers = self.spills = 0
        for launch in launches:
            kernel = compiled(launch.kernel)
            args = []
            for arg in launch.args:
                kind = type(arg).__name__
                if kind == "BufferArg":
                    args.append(memory[arg.buffer])
                elif kind in ("WorkArg", "ZerosArg"):
                    args.append(shared["work" if kind == "WorkArg" else "zeros"])
                else:
                    args.append(arg.value.evaluate({}))
            grid = tuple(g.evaluate({}) for g in launch.grid)
            self.steps.append((kernel[grid], args))
            self.registers, self.spills = kernel.n_regs, kernel.n_spills

    def __call__(self) -> None:
        for run, args in self.steps:
            run(*args)


def timed(functions: list[Callable[[], Any]]) -> float:
    """Microseconds of one of the functions, all in one graph; the median over replays."""
    return replayed(graph_of(functions)) / len(functions)


def graph_of(functions: list[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """All functions, one after another."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        functions[0]()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for f in functions:
                f()
    return graph


def replayed(graph: torch.cuda.CUDAGraph, replays: int = 15) -> float:
    """Microseconds of a graph; the median over replays."""
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    times = []
    for _ in range(replays):
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The GPU for this process, among those of bench/ that measure at the same time."""
    with open(Path(tempfile.gettempdir()) / "gpu_check.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_all(kernels: Iterable[Any], jobs: int) -> list[str]:
    """Compiles kernels side by side, into Triton's cache on the disk; what went wrong."""
    with ProcessPoolExecutor(jobs) as pool:
        return [f for f in pool.map(_compile, kernels, chunksize=2) if f]


# shapes --------------------------------------------------------------------------------------------------------------
def gemm_shape_of(m: int, n: int, k: int, tiles: tuple[Tile, ...], dtype: str = "bf16", float32: str = "ieee") -> Shape:
    probe = gemm_probe(m, n, k, dtype, bias=True)

    def peer(t: dict[str, torch.Tensor]) -> list[Callable[[], torch.Tensor]]:
        return [lambda: F.linear(t["a"], t["b"], t["bias"])]

    key = {"m": m, "n": n, "k": k, "batch": 1, "dtype": dtype}
    label = f"{m}x{n}x{k} {dtype}{f' {float32}' if dtype == 'f32' else ''}"
    if dtype == "f32":
        key["float32"] = float32
    moved = (4.0 if dtype == "f32" else 2.0) * (m * k + n * k + m * n)
    return Shape("gemm", label, probe, key, peer, tiles, 2.0 * m * n * k, moved, float32)


def pair_shape_of(m: int, n: int, k: int) -> Shape:
    """A GLU of two products; the peer is one product of both weights, without the GLU."""
    probe = pair_probe(m, n, k, "bf16")
    assert isinstance(probe.node, Gemm)

    def peer(t: dict[str, torch.Tensor]) -> list[Callable[[], torch.Tensor]]:
        return [lambda: F.linear(t["a"], t["w"])]

    key = {"m": m, "n": 2 * n, "k": k, "batch": 1, "dtype": "bf16", "together": 2, "heavy": True}
    every = dict.fromkeys((*_prompt_tiles(m, 2 * n, k), *tile_candidates(probe.node, CHIP)))
    pairs = dict.fromkeys(of_pair(t, probe.node) for t in every if t.split == 1 and isinstance(t, GemmTile))
    tiles = tuple(t for t in pairs if not misfit(probe.node, t))
    moved = 2.0 * (m * k + 2 * n * k + m * n)
    return Shape("gemm", f"{m}x2*{n}x{k} GLU", probe, key, peer, tiles, 4.0 * m * n * k, moved)


def _prompt_tiles(m: int, n: int, k: int) -> tuple[GemmTile, ...]:
    """Of the product of a prompt: those of many rows, and the most promising ones of few."""
    large = [t for t in large_tiles() if m >= 128 and isinstance(t, GemmTile)]
    few = sorted(
        (*skinny_tiles(CHIP, m, n, k), *middle_tiles(CHIP, m, n, k)),
        key=lambda tile: estimate(ProductShape(m, n, k, 1, 2), "bf16", tile, CHIP),
    )
    return (*large, *few[:16])


def prompt_shapes() -> list[Shape]:
    """Products of the layers of a Llama of 1 B (hidden 2048) and of 8 B (4096), for prompts."""
    found = []
    for m, (n, k) in itertools.product((512, 2048), ((3072, 2048), (2048, 2048), (2048, 8192))):
        found.append(gemm_shape_of(m, n, k, _prompt_tiles(m, n, k)))
    found += [pair_shape_of(m, 8192, 2048) for m in (512, 2048)]
    for n, k in ((6144, 4096), (4096, 4096), (4096, 14336)):
        found.append(gemm_shape_of(2048, n, k, tuple(large_tiles())))
    return [*found, pair_shape_of(2048, 14336, 4096)]


def sliced_shape_of(m: int, n: int, k: int, slices: int) -> Shape:
    """Sums over parts of k, left to the reader; the peer is the whole product."""
    probe = gemm_probe(m, n, k, "bf16", slices=slices, out_dtype="f32")

    def peer(t: dict[str, torch.Tensor]) -> list[Callable[[], torch.Tensor]]:
        return [lambda: F.linear(t["a"], t["b"])]

    key = {"m": m, "n": n, "k": k // slices, "batch": slices, "dtype": "bf16"}
    every = (*skinny_tiles(CHIP, m, n, k // slices, slices), *middle_tiles(CHIP, m, n, k // slices, slices))
    tiles = tuple(t for t in every if t.split == 1)
    moved = 2.0 * (m * k + n * k) + 4.0 * slices * m * n
    return Shape("gemm", f"{m}x{n}x{k} in {slices} parts", probe, key, peer, tiles, 2.0 * m * n * k, moved)


def attention_shape_of(
    batch: int, heads: int, queries: int, keys: int, head: int, causal: bool, tiles: tuple[Tile, ...], kv: int = 0
) -> Shape:
    probe = attention_probe(batch, heads, queries, keys, head, "bf16", causal=causal, kv_heads=kv)

    def peer(t: dict[str, torch.Tensor]) -> list[Callable[[], torch.Tensor]]:
        q, k, v = (t[name].transpose(1, 2) for name in "qkv")
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def attend(backend: Any) -> Callable[[], torch.Tensor]:
            def run() -> torch.Tensor:
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv != 0)

            return run

        return [attend(SDPBackend.FLASH_ATTENTION), attend(SDPBackend.CUDNN_ATTENTION)]

    key = {"queries": queries, "keys": keys, "head": head, "products": batch * heads, "dtype": "bf16", "causal": causal}
    flops = 4.0 * batch * heads * queries * keys * head * (0.5 if causal else 1.0)
    moved = 2.0 * batch * head * (2 * heads * queries + 2 * (kv or heads) * keys)
    name = f"b{batch} h{heads} {queries}x{keys} d{head}{' causal' if causal else ''}{f' kv{kv}' if kv else ''}"
    return Shape("attention", name, probe, key, peer, tiles, flops, moved)


def conv_shape_of(batch: int, size: int, channels: int, out: int, kernel: int, stride: int) -> Shape:
    window = Window((kernel, kernel), (stride, stride), (kernel // 2, kernel // 2), (1, 1), 1)
    probe = conv_probe(batch, (size, size), channels, out, window, "bf16", bias=True, relu=True)

    def peer(t: dict[str, torch.Tensor]) -> list[Callable[[], torch.Tensor]]:
        x = t["x"].permute(0, 3, 1, 2)
        w = t["w"].reshape(out, kernel, kernel, channels).permute(0, 3, 1, 2)

        def run() -> torch.Tensor:
            return F.conv2d(x, w, t["bias"], stride, kernel // 2)

        return [run]

    node: Any = probe.node
    shape = conv_shape(node)
    key = {"m": shape.m, "n": shape.n, "k": shape.k, "batch": 1, "dtype": "bf16", "kernel": kernel}
    moved = 2.0 * (batch * size * size * channels + shape.n * shape.k + shape.m * shape.n)
    tiles = conv_tiles(node, CHIP)
    label = f"b{batch} {size}x{size} {channels}->{out} {kernel}x{kernel}/{stride}"
    return Shape("conv", label, probe, key, peer, tiles, 2.0 * shape.m * shape.n * shape.k, moved)


def sections() -> dict[str, list[Shape]]:
    """All shapes: products of BERT, ViT and Llama layers at one batch and many, ResNet-50 at batch 1 and 32."""
    skinny = (
        *((128, 2304, 768), (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (128, 1280, 768), (128, 4096, 768)),
        *((128, 768, 2048), (128, 32000, 768), (1, 3072, 768), (1, 768, 3072), (1, 4096, 4096), (1, 32000, 768)),
    )
    large = (
        *((4096, 2304, 768), (4096, 768, 768), (4096, 3072, 768), (4096, 768, 3072), (4096, 1280, 768)),
        *((4096, 4096, 768), (8192, 8192, 8192)),
    )
    heads = (
        *((1, 12, 128, 128, 64, False), (32, 12, 128, 128, 64, False), (1, 12, 197, 197, 64, False)),
        *((32, 12, 197, 197, 64, False), (8, 12, 512, 512, 64, False), (2, 16, 4096, 4096, 64, False)),
        *((2, 16, 4096, 4096, 64, True), (2, 16, 4096, 4096, 128, False), (1, 12, 128, 128, 64, True)),
        (8, 12, 1, 2048, 64, False),
    )
    resnet = (
        *((224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1)),
        *((56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (28, 128, 512, 1, 1), (56, 256, 512, 1, 2), (28, 512, 128, 1, 1)),
        *(
            (28, 128, 128, 3, 1),
            (28, 512, 256, 1, 1),
            (28, 256, 256, 3, 2),
            (14, 256, 1024, 1, 1),
            (28, 512, 1024, 1, 2),
        ),
        *(
            (14, 1024, 256, 1, 1),
            (14, 256, 256, 3, 1),
            (14, 1024, 512, 1, 1),
            (14, 512, 512, 3, 2),
            (7, 512, 2048, 1, 1),
        ),
        *((14, 1024, 2048, 1, 2), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1)),
    )
    floats = tuple(large_tiles("f32"))
    other = (
        *((197, 2304, 768), (197, 768, 768), (197, 3072, 768), (197, 768, 3072), (512, 2304, 768), (512, 768, 768)),
        *((512, 3072, 768), (512, 768, 3072), (1024, 3072, 768), (1024, 768, 3072), (1, 1000, 2048), (16, 4096, 4096)),
    )
    many = ((6304, 2304, 768), (6304, 768, 768), (6304, 3072, 768), (6304, 768, 3072), (4096, 768, 2048))
    parts = (
        *((128, 768, 768, s) for s in (2, 3, 4, 6)),
        *((128, 768, 3072, s) for s in (2, 3, 4, 6, 8, 12)),
        *((128, 768, 2048, s) for s in (2, 4, 8)),
        *((197, 768, 768, 2), (197, 768, 768, 3), (197, 768, 3072, 3), (197, 768, 3072, 4), (197, 768, 3072, 6)),
    )
    return {
        "skinny": [gemm_shape_of(*s, (*skinny_tiles(CHIP, *s), *middle_tiles(CHIP, *s))) for s in skinny],
        "gemm": [gemm_shape_of(*s, tuple(large_tiles())) for s in large],
        "other": [gemm_shape_of(*s, (*skinny_tiles(CHIP, *s), *middle_tiles(CHIP, *s))) for s in other]
        + [gemm_shape_of(*s, tuple(large_tiles())) for s in many],
        "prompts": prompt_shapes(),
        "slices": [sliced_shape_of(*s) for s in parts],
        "attention": [attention_shape_of(*s, tuple(attention_tiles(*s[2:5], s[2] < 16))) for s in heads],
        "conv": [conv_shape_of(b, *s) for b in (1, 32) for s in resnet],
        "float": [gemm_shape_of(4096, 3072, 768, floats, "f32", mode) for mode in ("ieee", "tf32x3", "tf32")],
    }


# the run -------------------------------------------------------------------------------------------------------------
def measure(shape: Shape, deadline: float) -> list[dict[str, Any]]:
    """All candidates of a shape, the fastest first; the peer is the first row."""
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = shape.float32 == "tf32"
    probe, device = shape.probe, shape.device()
    limit = TOLERANCE["tf32" if shape.float32 == "tf32" else shape.key["dtype"]]
    weights = sum(b.size.evaluate({}) * 2 for b in probe.buffers.values() if b.kind == "const")
    copies = max(4, min(32, int(COLD / max(weights, 1)))) if weights else 16
    if shape.flops > 2e11:
        copies = 2
    sets = [_tensors(probe) for _ in range(copies)]
    for other in sets[1:]:  # the activations are warm, as after the kernel before
        for name in other:
            if probe.buffers[name].kind != "const" and shape.kind != "attention":
                other[name] = sets[0][name]
    reference = probe.reference({n: t.double() for n, t in sets[0].items() if n != "y"})
    peers: list[dict[str, Any]] = []
    for run in zip(*(shape.peer(s) for s in sets), strict=True):
        try:
            graph = graph_of(list(run))
            peers.append({"tile": "peer", "graph": graph, "us": replayed(graph) / copies})
        except Exception as error:
            print(f"  peer: {str(error)[:100]}", flush=True)
    rows = [min(peers, key=lambda row: row["us"])] if peers else []
    shared = {
        "work": torch.empty(512 << 20, device="cuda"),
        "zeros": torch.zeros(1 << 16, dtype=torch.int32, device="cuda"),
    }
    for tile in shape.tiles:
        if time.time() > deadline:
            break
        row: dict[str, Any] = {"tile": asdict(tile), "text": str(tile)}
        try:
            launches = launches_of(probe.node, device, "kernel", tile)
            runners = [Runner(launches, {probe.buffers[n]: t for n, t in s.items()}, shared) for s in sets]
            shared["zeros"].zero_()
            sets[0]["y"].fill_(float("nan"))
            runners[0]()
            error = (sets[0]["y"].double() - reference).norm() / reference.norm()
            row |= {"error": float(error), "registers": runners[0].registers, "spills": runners[0].spills}
            if not row["error"] <= limit:
                row["failure"] = "wrong"
            else:
                row["graph"] = graph_of(list(runners))
                row["us"] = replayed(row["graph"]) / copies
        except Exception as error:
            row["failure"] = f"{type(error).__name__}: {str(error)[:160]}"
        rows.append(row)
    _take_turns(rows, copies)
    return [{name: value for name, value in row.items() if name != "graph"} for row in rows]


def _take_turns(rows: list[dict[str, Any]], copies: int) -> None:
    """The peer and the fastest candidates once more, in turns: a GPU that is hot runs slower. Their medians count."""
    fastest = sorted((row for row in rows if "us" in row), key=lambda row: (row["tile"] != "peer", row["us"]))[
        :FINALISTS
    ]
    turns = [[replayed(row["graph"]) / copies for row in fastest] for _ in range(TURNS)]
    for row, times in zip(fastest, zip(*turns, strict=True), strict=True):
        row |= {"us": statistics.median(times), "turns": times}


def _tensors(probe: Probe) -> dict[str, torch.Tensor]:
    made = {}
    for name, shape in probe.shapes.items():
        sizes = tuple(s.evaluate({}) for s in shape)
        made[name] = torch.randn(sizes, device="cuda", dtype=torch.float32).to(to_torch(probe.buffers[name].dtype))
    return made


def report(shape: Shape, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Prints the best few; the row of the tile database."""
    peer = next((r["us"] for r in rows if r["tile"] == "peer"), None)
    good = sorted((r for r in rows if r["tile"] != "peer" and "us" in r), key=lambda r: r["us"])
    wrong = [r for r in rows if "failure" in r]
    device = shape.device()
    floor = max(shape.flops / device.tflops / 1e6, shape.bytes / device.bandwidth / 1e6)
    peer_text = f"{peer:8.2f}" if peer else "       -"
    if not good:
        print(f"{shape.label:32s} peer {peer_text} us, no candidate works: {wrong[:1]}", flush=True)
        return None
    best = good[0]
    options = f"w{best['tile']['warps']} s{best['tile']['stages']}"
    ratio = f"{peer / best['us']:5.2f}x" if peer else ""
    print(
        f"{shape.label:32s} peer {peer_text} ours {best['us']:8.2f} us {ratio} floor {floor:7.2f} "
        f"{shape.flops / best['us'] / 1e6:6.1f} TFLOP/s  {best['text']} {options} "
        f"err {best['error']:.1e} spills {best['spills']}; then "
        + ", ".join(f"{r['text']} {r['us']:.2f}" for r in good[1:3])
        + (f"; {len(wrong)} failed: {wrong[0]['text']} {wrong[0]['failure'][:80]}" if wrong else ""),
        flush=True,
    )
    defaults = asdict(GemmTile(0, 0, 0) if shape.kind != "attention" else AttentionTile(0, 0))
    tile = {k: v for k, v in best["tile"].items() if k in ("m", "n", "k") or v != defaults[k]}
    return {"kind": shape.kind, **shape.key, "tile": tile, "us": round(best["us"], 2), "peer_us": round(peer or 0, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--only", default="", help="labels that begin so, with commas between")
    parser.add_argument("--chosen", action="store_true", help="only the tiles that packages would have")
    parser.add_argument("--seconds", type=float, default=400, help="stop after this long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    args = parser.parse_args()
    start = time.time()
    torch.backends.cudnn.benchmark = True
    every = sections()
    chosen = [s for name in (args.sections or every) for s in every[name]]
    chosen = [s for s in chosen if not args.only or s.label.startswith(tuple(args.only.split(",")))]
    if args.chosen:
        chosen = [replace(s, tiles=(chosen_tile(s.probe.node, s.device()),)) for s in chosen]
    kernels: dict[Any, None] = {}
    for shape, tile in ((s, t) for s in chosen for t in s.tiles):
        with contextlib.suppress(ValueError):
            kernels |= dict.fromkeys(x.kernel for x in launches_of(shape.probe.node, shape.device(), "kernel", tile))
    print(f"{len(chosen)} shapes, {len(kernels)} kernels", flush=True)
    failures = compile_all(kernels, args.jobs)
    print(f"compiled in {time.time() - start:.0f} s; {len(failures)} failed: {failures[:2]}", flush=True)
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    import triton

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    with alone():
        _measure_all(chosen, args.out, start + args.seconds)
    print(f"{time.time() - start:.0f} s", flush=True)


def _measure_all(shapes: Iterable[Shape], out: Path, deadline: float) -> None:
    results, database = [], []
    out.mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        if time.time() > deadline:
            print("out of time", flush=True)
            break
        rows = measure(shape, deadline)
        results.append({"kind": shape.kind, "label": shape.label, **shape.key, "rows": rows})
        row = report(shape, rows)
        database += [row] if row else []
        (out / "results.json").write_text(json.dumps(results))
        (out / f"tiles_sm{CAPABILITY}.json").write_text(database_text(database))


def database_text(rows: list[dict[str, Any]]) -> str:
    """One row a line, so that a change can be read."""
    return f'{{"chip": "{CHIP.name}", "rows": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n"


if __name__ == "__main__":
    main()
