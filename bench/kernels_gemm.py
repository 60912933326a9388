"""GFLOP/s of the CPU GEMM kernels beside the core's FMA roof and beside torch eager.

    python bench/kernels_gemm.py [--isa x86-64-v3,x86-64-v4] [--threads 1] [--only bert] [--seconds 0.4]

Weights are cold: every run takes the next of several copies that together exceed the last-level cache, as the layers
of a model do. Roof, kernel and torch are measured in turn within each row; the roof is that of the ISA's registers on
one core, times the threads.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from kernel_cases import Libraries, arguments, print_table, repeats_for, row, take_turns

PANEL = 16
LINE = 16  # floats of a cache line
HUGE_PAGE = 2 << 20
COLD_BYTES = 96 << 20
SOURCE = Path(__file__).with_suffix(".cpp")


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


CASES: list[Product] = [
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
]


def floats(count: int) -> np.ndarray:
    """`count` random float32, aligned to 64 bytes."""
    raw = np.random.default_rng(0).random(count + LINE, np.float32) - np.float32(0.5)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + count]


def side_by_side(*counts: int) -> list[np.ndarray]:
    """Arrays of so many random float32, one behind the other in huge pages, as those of a package lie."""
    places = np.cumsum([0, *(-(-count // LINE) * LINE for count in counts)])
    room = mmap.mmap(-1, 4 * int(places[-1]) + 2 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(room, np.float32)
    memory = memory[-memory.ctypes.data % HUGE_PAGE // 4 :][: places[-1]]
    memory[:] = floats(len(memory))
    return [memory[place : place + count] for place, count in zip(places, counts, strict=False)]


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
    sizes = case.batch * case.m * case.k, copies * stride, case.batch * case.m * case.n, columns
    a, b, out, bias = side_by_side(*sizes)
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
        return Prepared("bench_gemm_unpacked", arguments, out, bias, 1, 0, lambda i: image @ other, (a, b))
    arguments = structure(1, case.m, case.n, case.k, a, 0, case.k, b, 0, b.nbytes, 0)
    weights = torch.from_numpy(b).view(copies, columns, case.k)[:, : case.n]
    add = torch.from_numpy(bias)[: case.n]
    eager = lambda i: torch.nn.functional.linear(image[0], weights[i % copies], add)  # noqa: E731
    return Prepared("bench_gemm", arguments, out, bias, copies, stride, eager, (a, b))


def measure(case: Product, libraries: Libraries, threads: int, seconds: float) -> str:
    prepared = prepare_product(case)
    repeats = repeats_for(case.flops, threads, seconds)
    times = take_turns(libraries, threads, prepared.run, prepared.torch, repeats)
    return row(case.name, case.flops, times, threads)


def main() -> None:
    options = arguments(__doc__).parse_args()
    print_table(options, SOURCE, CASES, lambda case, own: measure(case, own, options.threads, options.seconds))


if __name__ == "__main__":
    main()
