"""Products with int8, int4 and bf16 weights: the share of the read bandwidth, and the rate beside float32's.

    python bench/kernels_quantized.py [--isa x86-64-v3,x86-64-v4+vnni] [--threads 1] [--only "rows 1 "] [--seconds 0.4]

Weights are cold: every run takes the next of several copies that together exceed the last-level cache. The bandwidth is
that of reading 16 MiB of them, by the same threads, in turns with the kernels.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kernel_cases import ROUNDS, Libraries, arguments, build, wanted

SOURCE = Path(__file__).with_suffix(".cpp")
COLD_BYTES = 256 << 20
READ_BYTES = 16 << 20
GROUP = 32


@dataclass(frozen=True)
class Form:
    """A kind of product by its number in the library. bits: stored for a weight, scales included."""

    name: str
    number: int
    bits: float


FORMS = (
    Form("float32", 0, 32),
    Form("float x int8", 1, 8),
    Form("float x int4", 2, 4 + 16 / GROUP),
    Form("int8 x int8", 3, 8),
    Form("int8 x int4", 4, 4 + 16 / GROUP),
    Form("bf16", 5, 16),
)


@dataclass(frozen=True)
class Case:
    m: int
    n: int = 2048
    k: int = 2048

    @property
    def name(self) -> str:
        return f"rows {self.m} {self.n}x{self.k}"


CASES = [
    *(Case(m) for m in (1, 2, 4, 8, 16, 64, 512)),
    Case(1, 768, 2048),
    Case(1, 32000, 768),
    Case(512, 768, 768),
    Case(128, 3072, 768),
]  # fmt: skip


class Product(ctypes.Structure):
    """As kernels_quantized.cpp has it."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "group")), ("a", ctypes.c_void_p), ("b", ctypes.c_void_p),
        ("bytes", ctypes.c_int64), ("copies", ctypes.c_int64), *((name, ctypes.c_void_p) for name in ("scales", "out")),
        ("column_scales", ctypes.c_void_p),
    ]  # fmt: skip


def aligned(count: int, dtype: type) -> np.ndarray:
    """Zeros that begin at a page."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 4096, np.uint8)
    return raw[-raw.ctypes.data % 4096 :][: count * np.dtype(dtype).itemsize].view(dtype)


class Memory:
    """What all cases read and write."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.weights = aligned(COLD_BYTES // 4, np.float32)
        self.weights[:] = np.resize(rng.standard_normal(1 << 20).astype(np.float32), len(self.weights))
        most = max(c.m for c in CASES), max(c.n for c in CASES), max(c.k for c in CASES)
        self.rows = aligned(most[0] * most[2], np.float32)
        self.rows[:] = rng.standard_normal(len(self.rows))
        self.out = aligned(max(c.m * c.n for c in CASES), np.float32)
        self.scales = aligned(COLD_BYTES // 2 // GROUP, np.float16)
        self.scales[:] = 0.01
        self.columns = aligned(most[1] + 16, np.float32)

    def product(self, case: Case, form: Form) -> Product:
        size = -(-case.n // 16) * 16 * case.k * (form.bits // 4 / 2)
        copies = max(1, COLD_BYTES // int(size))
        data = [array.ctypes.data for array in (self.rows, self.weights, self.scales, self.out, self.columns)]
        rows, weights, scales, out, columns = data
        return Product(case.m, case.n, case.k, GROUP, rows, weights, int(size), copies, scales, out, columns)


def measure(case: Case, libraries: Libraries, memory: Memory, threads: int, seconds: float) -> list[str]:
    """A line for each level: milliseconds, share of the bandwidth (few rows) or rate beside float32's (more)."""
    flops = 2.0 * case.m * case.n * case.k
    least = max(flops / 100e9 / threads, case.n * case.k / 1e10)
    repeats = max(5, min(200, int(seconds / ROUNDS / len(FORMS) / least)))
    hosts = {isa: ctypes.c_void_p(own.bench_host(threads)) for isa, own in libraries.items()}
    best = {(isa, form): float("inf") for isa in libraries for form in FORMS}
    read = dict.fromkeys(libraries, float("inf"))
    for _ in range(ROUNDS):
        for isa, own in libraries.items():
            weights = ctypes.c_void_p(memory.weights.ctypes.data)
            sizes = ctypes.c_int64(READ_BYTES), ctypes.c_int64(COLD_BYTES // READ_BYTES)
            read[isa] = min(read[isa], own.bench_read(hosts[isa], weights, *sizes, 40))
            for form in FORMS:
                taken = own.bench_product(hosts[isa], ctypes.byref(memory.product(case, form)), form.number, repeats)
                best[isa, form] = min(best[isa, form], taken)
    lines = []
    for isa, own in libraries.items():
        own.bench_host_free(hosts[isa])
        cells = []
        for form in FORMS:
            taken = best[isa, form]
            share = case.n * case.k * form.bits / 8 / taken / (READ_BYTES / read[isa])
            beside = f" {100 * share:4.0f} %" if case.m <= 16 else f"  x{best[isa, FORMS[0]] / taken:4.2f}"
            cells.append(f"{taken * 1e3:8.3f} ms {flops / taken / 1e9:6.0f}{beside}")
        lines.append(f"{case.name:20} {isa:15} {READ_BYTES / read[isa] / 1e9:5.1f} |" + " |".join(cells))
    return lines


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(isa="x86-64-v3")
    options = parser.parse_args()
    libraries = {isa: build(isa, SOURCE) for isa in options.isa.split(",")}
    for own in libraries.values():
        own.bench_read.restype = own.bench_product.restype = ctypes.c_double
    print(f"{'':36} GB/s |" + " |".join(f"{f.name:>12} GFLOP/s   " for f in FORMS))
    print(f"{'':43}share of that bandwidth up to 16 rows, then times as fast as float32")
    memory = Memory()
    for case in CASES:
        if wanted(case.name, options.only):
            print("\n".join(measure(case, libraries, memory, options.threads, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
