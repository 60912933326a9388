"""GFLOP/s of the CPU attention kernel beside the core's FMA roof and beside torch's scaled_dot_product_attention.

    python bench/kernels_attention.py [--isa x86-64-v3,x86-64-v4] [--threads 1] [--only bert] [--layout bshd]

Q, K, V and the output lie as (batch, sequence, heads, size), as projections leave them, or as (batch, heads, sequence,
size). A causal attention counts half of the products. Kernel and torch are measured in turn within each row. Decoding
rows show GB/s: the bytes of K and V, each read once.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import torch
from kernel_cases import Libraries, arguments, print_table, repeats_for, row, take_turns

SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True)
class Case:
    name: str
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    causal: bool = False
    batch: int = 1

    @property
    def flops(self) -> float:
        return 4.0 * self.batch * self.heads * self.queries * self.keys * self.size / (2 if self.causal else 1)

    @property
    def bytes(self) -> float:
        return 8.0 * self.batch * self.kv_heads * self.keys * self.size


CASES = [
    Case("bert 17", 12, 12, 17, 17, 64),
    Case("bert 128", 12, 12, 128, 128, 64),
    Case("bert 300", 12, 12, 300, 300, 64),
    Case("bert 128 batch 8", 12, 12, 128, 128, 64, batch=8),
    Case("vit 197", 12, 12, 197, 197, 64),
    Case("whisper 1500", 6, 6, 1500, 1500, 64),
    Case("gpt2 128 causal", 12, 12, 128, 128, 64, causal=True),
    Case("llama 128 causal, groups", 12, 4, 128, 128, 64, causal=True),
    Case("gpt2 1024 causal", 12, 12, 1024, 1024, 64, causal=True),
    Case("long 4096 causal", 4, 4, 4096, 4096, 64, causal=True),
    Case("size 32", 8, 8, 128, 128, 32),
    Case("size 80", 8, 8, 256, 256, 80),
    Case("size 128", 8, 8, 512, 512, 128),
    Case("16 queries", 12, 12, 16, 1500, 64),
    Case("8 queries", 12, 12, 8, 1500, 64),
    Case("decode 300", 12, 12, 1, 300, 64),
    Case("decode 2048", 12, 12, 1, 2048, 64),
    Case("decode 4096, groups", 32, 8, 1, 4096, 128),
]


class AttentionArgs(ctypes.Structure):
    """The C++ struct of the same name."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("batch", "heads", "kv_heads", "queries", "keys", "head_size", "value_size")
        ),
        *((f"{name}_{dim}", ctypes.c_int64) for name in ("q", "k", "v", "out") for dim in ("batch", "head", "row")),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_bool),
        ("causal_offset", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("k_first", "v_first")),
        *((f"{name}_rest_{dim}", ctypes.c_int64) for name in ("k", "v") for dim in ("batch", "head", "row")),
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "k_rest", "v_rest")),
    )


def tensor(case: Case, heads: int, length: int, layout: str) -> torch.Tensor:
    """Random (batch, heads, length, size), in memory as `layout` says."""
    if layout == "bshd":
        return torch.randn(case.batch, length, heads, case.size).transpose(1, 2)
    return torch.randn(case.batch, heads, length, case.size)


def measure(case: Case, libraries: Libraries, threads: int, seconds: float, layout: str) -> str:
    """A row of the table. The kernel's first results are compared with torch's."""
    q = tensor(case, case.heads, case.queries, layout)
    k, v = (tensor(case, case.kv_heads, case.keys, layout) for _ in range(2))
    out = torch.empty_like(q)
    strides = [stride for t in (q, k, v, out) for stride in t.stride()[:3]]
    args = AttentionArgs(
        case.batch, case.heads, case.kv_heads, case.queries, case.keys, case.size, case.size,
        *strides, case.size**-0.5, case.causal, 0, case.keys, case.keys, *(0,) * 6,
        *(t.data_ptr() for t in (q, k, v, out)),
    )  # fmt: skip

    def eager(_: int) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=case.causal, enable_gqa=case.heads != case.kv_heads
        )

    def run(library: ctypes.CDLL, _: ctypes.c_void_p, repeats: int) -> float:
        library.bench_attention.restype = ctypes.c_double
        return float(library.bench_attention(ctypes.byref(args), threads, repeats))

    times = take_turns(libraries, threads, run, eager, repeats_for(case.flops, threads, seconds, least=4))
    expected = eager(0)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    line = row(case.name, case.flops, times, threads)
    if case.queries == 1:
        line += "   " + ", ".join(f"{isa} {case.bytes / times.best[isa] / 1e9:.1f} GB/s" for isa in libraries)
    return line


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--layout", choices=["bshd", "bhsd"], default="bshd")
    options = parser.parse_args()
    rest = options.threads, options.seconds, options.layout
    print_table(options, SOURCE, CASES, lambda case, own: measure(case, own, *rest))


if __name__ == "__main__":
    main()
