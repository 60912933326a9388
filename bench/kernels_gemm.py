"""GFLOP/s of the CPU GEMM and convolution kernels beside the core's FMA roof and beside torch eager.

    python bench/kernels_gemm.py [--isa x86-64-v3,x86-64-v4] [--threads 1] [--only conv] [--seconds 0.4]

Weights are cold: every run takes the next of several copies that together exceed the last-level cache, as the layers
of a model do. Roof, kernel and torch are measured in turn within each row; the roof is that of the ISA's registers on
one core, times the threads.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from mycc.compiler.codegen.micro import render_micro_kernels

ROOT = Path(__file__).resolve().parents[1]
FLAGS = "-std=c++17 -O2 -fno-exceptions -fno-rtti -fno-math-errno -fno-trapping-math -Wno-psabi".split()
PANEL = 16
COLD_BYTES = 96 << 20


@dataclass(frozen=True)
class Product:
    """C = A B; the kernel with packed weights, or with B as it lies in memory (free: b is K x N, or N x K)."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    free: str = ""

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class Convolution:
    name: str
    size: tuple[int, int]
    in_c: int
    out_c: int
    kernel: tuple[int, int]
    stride: int = 1
    pad: tuple[int, int] = (0, 0)
    groups: int = 1

    @property
    def out_size(self) -> tuple[int, int]:
        height, width = ((self.size[i] + 2 * self.pad[i] - self.kernel[i]) // self.stride + 1 for i in (0, 1))
        return height, width

    @property
    def flops(self) -> float:
        out_h, out_w = self.out_size
        return 2.0 * out_h * out_w * self.out_c * self.in_c // self.groups * self.kernel[0] * self.kernel[1]


CASES: list[Product | Convolution] = [
    *(Product(f"bert {m}x{n}x{k}", m, n, k) for m, n, k in ((128, 768, 768), (128, 3072, 768), (128, 768, 3072))),
    Product("gpt2 head", 128, 50257, 768),
    Product("vit", 197, 3072, 768),
    *(Product(f"rows {m}", m, 3072, 768) for m in (1, 2, 3, 4, 6, 8, 16, 17, 32, 64)),
    Product("rows 1 deep", 1, 768, 3072),
    Product("gpt2 head 1", 1, 50257, 768),
    Product("gpt2 head 4", 4, 50257, 768),
    Product("rows 16 deep", 16, 768, 3072),
    Product("square 512", 512, 512, 512),
    Product("square 1024", 1024, 1024, 1024),
    Product("scores 12x128x128x64", 128, 128, 64, batch=12, free="nk"),
    Product("values 12x128x64x128", 128, 64, 128, batch=12, free="kn"),
    Product("free square 512", 512, 512, 512, free="kn"),
    Product("free decode scores", 1, 1024, 64, batch=12, free="nk"),
    Product("free decode values", 1, 64, 1024, batch=12, free="kn"),
    Product("free 4 nk", 4, 1024, 64, batch=12, free="nk"),
    Product("free 4 kn", 4, 64, 1024, batch=12, free="kn"),
    Product("free 8 nk", 8, 1024, 64, batch=12, free="nk"),
    Product("free 1 kn wide", 1, 1024, 1024, free="kn"),
    Convolution("conv 7x7 s2 3-64", (224, 224), 3, 64, (7, 7), 2, (3, 3)),
    Convolution("conv 1x1 56 64-64", (56, 56), 64, 64, (1, 1)),
    Convolution("conv 3x3 56 64-64", (56, 56), 64, 64, (3, 3), 1, (1, 1)),
    Convolution("conv 1x1 56 64-256", (56, 56), 64, 256, (1, 1)),
    Convolution("conv 1x1 56 256-64", (56, 56), 256, 64, (1, 1)),
    Convolution("conv 3x3 s2 56 128-128", (56, 56), 128, 128, (3, 3), 2, (1, 1)),
    Convolution("conv 3x3 28 128-128", (28, 28), 128, 128, (3, 3), 1, (1, 1)),
    Convolution("conv 1x1 28 128-512", (28, 28), 128, 512, (1, 1)),
    Convolution("conv 1x1 28 512-128", (28, 28), 512, 128, (1, 1)),
    Convolution("conv 1x1 s2 56 256-512", (56, 56), 256, 512, (1, 1), 2),
    Convolution("conv 3x3 14 256-256", (14, 14), 256, 256, (3, 3), 1, (1, 1)),
    Convolution("conv 1x1 14 256-1024", (14, 14), 256, 1024, (1, 1)),
    Convolution("conv 1x1 14 1024-256", (14, 14), 1024, 256, (1, 1)),
    Convolution("conv 3x3 7 512-512", (7, 7), 512, 512, (3, 3), 1, (1, 1)),
    Convolution("conv 1x1 7 512-2048", (7, 7), 512, 2048, (1, 1)),
    Convolution("conv 1x1 7 2048-512", (7, 7), 2048, 512, (1, 1)),
    Convolution("conv patches 16x16", (224, 224), 3, 768, (16, 16), 16),
    Convolution("conv 1d 80-384", (1, 3000), 80, 384, (1, 3), 1, (0, 1)),
    Convolution("conv 3x3 s2 3-32", (224, 224), 3, 32, (3, 3), 2, (1, 1)),
    Convolution("conv grouped 32", (28, 28), 256, 256, (3, 3), 1, (1, 1), groups=32),
    Convolution("depthwise 3x3 112 32", (112, 112), 32, 32, (3, 3), 1, (1, 1), groups=32),
    Convolution("depthwise 3x3 s2 112 96", (112, 112), 96, 96, (3, 3), 2, (1, 1), groups=96),
    Convolution("depthwise 3x3 28 192", (28, 28), 192, 192, (3, 3), 1, (1, 1), groups=192),
    Convolution("depthwise 3x3 14 576", (14, 14), 576, 576, (3, 3), 1, (1, 1), groups=576),
    Convolution("depthwise 5x5 14 576", (14, 14), 576, 576, (5, 5), 1, (2, 2), groups=576),
    Convolution("depthwise 7x7 14 384", (14, 14), 384, 384, (7, 7), 1, (3, 3), groups=384),
]


def build(isa: str) -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="mycc-bench-"))
    (folder / "micro_kernels.h").write_text(render_micro_kernels(isa))
    source, out = str(Path(__file__).with_suffix(".cpp")), str(folder / "bench.so")
    include = ["-I", str(folder), "-I", str(ROOT / "runtime" / "include")]
    subprocess.run(
        ["g++", *FLAGS, "-shared", "-fPIC", "-pthread", f"-march={isa}", *include, source, "-o", out], check=True
    )
    library = ctypes.CDLL(out)
    library.bench_roof.restype = ctypes.c_double
    library.bench_host.restype = ctypes.c_void_p
    return library


def floats(count: int) -> np.ndarray:
    """`count` random float32, aligned to 64 bytes."""
    raw = np.random.default_rng(0).random(count + 16, np.float32) - np.float32(0.5)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + count]


def structure(*values: int | np.ndarray) -> ctypes.Structure:
    """A C struct of int64 and float pointers."""
    kinds = [ctypes.c_int64 if isinstance(v, int) else ctypes.c_void_p for v in values]
    fields = [(f"f{i}", kind) for i, kind in enumerate(kinds)]
    kind = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
    return kind(*[v if isinstance(v, int) else v.ctypes.data for v in values])


@dataclass
class Prepared:
    """A case with its memory: `function` of the bench library, its arguments, and the same work in torch."""

    function: str
    arguments: ctypes.Structure
    out: np.ndarray
    bias: np.ndarray
    copies: int
    stride: int
    torch: Callable[[int], object]
    memory: tuple[np.ndarray, ...]

    def run(self, library: ctypes.CDLL, host: ctypes.c_void_p, repeats: int) -> float:
        function = getattr(library, self.function)
        function.restype = ctypes.c_double
        pointers = [ctypes.c_void_p(v.ctypes.data) for v in (self.out, self.bias)]
        sizes = [ctypes.c_int(repeats), ctypes.c_int64(self.copies), ctypes.c_int64(self.stride)]
        return function(host, ctypes.byref(self.arguments), *pointers, *sizes)


def prepare_product(case: Product) -> Prepared:
    columns = case.n if case.free else -(-case.n // PANEL) * PANEL
    stride = case.batch * columns * case.k
    copies = 1 if case.free else max(1, -(-COLD_BYTES // (4 * stride)))
    a, b = floats(case.batch * case.m * case.k), floats(copies * stride)
    out, bias = floats(case.batch * case.m * case.n), floats(columns)
    image = torch.from_numpy(a).view(case.batch, case.m, case.k)
    if case.free:
        b_k, b_n = (case.n, 1) if case.free == "kn" else (1, case.k)
        each = case.m * case.k
        arguments = structure(
            1, case.batch, case.m, case.n, case.k, a, 0, each, case.k, b, 0, case.n * case.k, b_k, b_n
        )
        shape = (case.batch, case.k, case.n) if case.free == "kn" else (case.batch, case.n, case.k)
        other = torch.from_numpy(b[: case.batch * case.n * case.k]).view(shape)
        other = other if case.free == "kn" else other.transpose(1, 2)
        return Prepared("bench_gemm_free", arguments, out, bias, 1, 0, lambda i: image @ other, (a, b))
    arguments = structure(1, case.m, case.n, case.k, a, 0, case.k, b, 0)
    weights = torch.from_numpy(b).view(copies, columns, case.k)[:, : case.n]
    add = torch.from_numpy(bias)[: case.n]
    eager = lambda i: torch.nn.functional.linear(image[0], weights[i % copies], add)  # noqa: E731
    return Prepared("bench_gemm", arguments, out, bias, copies, stride, eager, (a, b))


def prepare_convolution(case: Convolution) -> Prepared:
    (in_h, in_w), (out_h, out_w), (kernel_h, kernel_w) = case.size, case.out_size, case.kernel
    depthwise = case.groups == case.in_c == case.out_c
    group_in, group_out = case.in_c // case.groups, case.out_c // case.groups
    padded = group_out if depthwise else -(-group_out // PANEL) * PANEL
    stride = -(-case.groups * padded * group_in * kernel_h * kernel_w // PANEL) * PANEL
    copies = max(1, min(64, -(-COLD_BYTES // (4 * stride))))
    x, w, bias = floats(in_h * in_w * case.in_c), floats(copies * stride), floats(case.out_c + PANEL)
    out = floats(out_h * out_w * case.out_c)
    arguments = structure(
        1, in_h, in_w, case.in_c, out_h, out_w, case.out_c, kernel_h, kernel_w, case.stride, case.stride, *case.pad,
        1, 1, case.groups, x, x.size, in_w * case.in_c, case.in_c, w,
    )  # fmt: skip
    image = torch.from_numpy(x).view(1, in_h, in_w, case.in_c).permute(0, 3, 1, 2)
    shape = (case.out_c, group_in, kernel_h, kernel_w)
    weights = [
        torch.from_numpy(w[i * stride :][: case.out_c * group_in * kernel_h * kernel_w]).view(shape)
        for i in range(copies)
    ]
    weights = [v.contiguous(memory_format=torch.channels_last) for v in weights]
    add = torch.from_numpy(bias[: case.out_c])
    eager = lambda i: torch.conv2d(image, weights[i % copies], add, case.stride, case.pad, 1, case.groups)  # noqa: E731
    function = "bench_conv_depthwise" if depthwise else "bench_conv"
    return Prepared(function, arguments, out, bias, copies, stride, eager, (x, w))


def time_torch(prepared: Prepared, repeats: int) -> float:
    least = float("inf")
    for i in range(repeats):
        begin = time.perf_counter()
        prepared.torch(i)
        least = min(least, time.perf_counter() - begin)
    return least


def measure(case: Product | Convolution, libraries: dict[str, ctypes.CDLL], threads: int, seconds: float) -> str:
    prepared = prepare_product(case) if isinstance(case, Product) else prepare_convolution(case)
    hosts = {isa: ctypes.c_void_p(library.bench_host(threads)) for isa, library in libraries.items()}
    repeats = max(3, min(500, int(seconds / 4 / max(case.flops / 100e9 / threads, 1e-6))))
    best = dict.fromkeys([*libraries, "torch"], float("inf"))
    roof = dict.fromkeys(libraries, 0.0)
    for _ in range(4):
        best["torch"] = min(best["torch"], time_torch(prepared, repeats))
        for isa, library in libraries.items():
            roof[isa] = max(roof[isa], library.bench_roof())
            best[isa] = min(best[isa], prepared.run(library, hosts[isa], repeats))
    for isa, library in libraries.items():
        library.bench_host_free(hosts[isa])
    rate = {name: case.flops / seconds / 1e9 for name, seconds in best.items()}
    share = {isa: 100 * rate[isa] * 1e9 / (roof[isa] * threads) for isa in libraries}
    cells = [
        f"{best[isa] * 1e6:9.1f} us {rate[isa]:6.1f} {share[isa]:4.0f} %  x{best['torch'] / best[isa]:5.2f}"
        for isa in libraries
    ]
    return f"{case.name:26}" + " |".join(cells) + f" | torch {rate['torch']:6.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", default="x86-64-v3,x86-64-v4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=0.4, help="time spent on a case, about")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    libraries = {isa: build(isa) for isa in options.isa.split(",")}
    print(f"{'':26}" + " |".join(f"{isa:>12} GFLOP/s  roof  vs torch" for isa in libraries))
    with torch.inference_mode():
        for case in CASES:
            if options.only in case.name:
                print(measure(case, libraries, options.threads, options.seconds), flush=True)


if __name__ == "__main__":
    main()
