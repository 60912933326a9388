"""GB/s of loop kernels (maps, reductions, norms, permutations, gathers) beside the measured bandwidth of a plain copy.

    python bench/kernels_loops.py [--threads 1] [--only softmax] [--megabytes 64] [--target cpu] [--no-eager]

Every form is compiled as a model of its own entry point and timed by the runtime's profile, outputs already in place.
Bytes are those of the operands that are read and of the results, each once; the percentage is of the copy bandwidth,
which counts bytes read and written too. Eager torch is timed beside it, writing into memory that it has.
`--math` shows cycles per element of the operator table's float32 functions in the first level cache instead.
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
from typing import Any

import mycc
import torch
from mycc.compiler.build.targets import parse_targets
from mycc.compiler.ir.ops import GPU_ALONE, OPS, Printed, spell
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[1]
FLAGS = [
    *("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fno-trapping-math", "-fwrapv"),
    *("-Wno-psabi", "-shared", "-fPIC", "-pthread", "-I", str(ROOT / "runtime" / "include")),
]


@dataclass(frozen=True)
class Form:
    """A function of tensors; moved: bytes read and written, where the operands do not tell."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    moved: int | None = None


class Module(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def forms(megabytes: int) -> list[Form]:
    """Float32 tensors of about `megabytes` MiB in shapes of models."""
    n = megabytes << 18  # elements
    x = torch.randn(n // 4096, 4096)
    y = x.flip(0)
    rows = torch.randn(n // 1024, 1024)
    odd = torch.randn(n // 1021, 1021)
    hidden = torch.randn(n // 768, 768)
    image = torch.randn(n // (64 * 56 * 56), 64, 56, 56)
    last = torch.randn(n // (64 * 56 * 56), 56, 56, 64)
    heads = torch.randn(n // (128 * 12 * 64), 128, 12, 64)
    cube = torch.randn(n // (256 * 256), 256, 256)
    bias, weight = torch.randn(4096), torch.randn(768)
    table = torch.randn(30000, 768)
    ids = torch.randint(0, 30000, (n // 768,))
    small = torch.randn(256, 1024)
    column = torch.randn(n // 4096, 1)
    square, left = x[:4096, :4096].contiguous(), rows[:, :512].contiguous()
    half = 4 * n // 2
    return [
        Form("relu", torch.relu, (x,)),
        Form("relu 1 MB", torch.relu, (small,)),
        Form("add", torch.add, (x, y)),
        Form("bias and relu", lambda a, b: torch.relu(a + b), (x, bias)),
        Form("scale of rows", lambda a, b: a * b, (x, column)),
        Form("gelu", F.gelu, (x,)),
        Form("silu of one times another", lambda a, b: F.silu(a) * b, (x, y)),
        Form("tanh", torch.tanh, (x,)),
        Form("f32 to bf16", lambda a: a.to(torch.bfloat16), (x,)),
        Form("f32 to f16", lambda a: a.to(torch.float16), (x,)),
        Form("bf16 to f32", lambda a: a.to(torch.float32), (x.to(torch.bfloat16),)),
        Form("u8 to f32, normalised", lambda a: (a.to(torch.float32) - 127) * 0.02, (x.to(torch.uint8),)),
        Form("i64 to f32", lambda a: a.to(torch.float32), (x[: len(x) // 2].to(torch.int64),)),
        Form("compare and select", lambda a, b: torch.where(a > b, a, -b), (x, y)),
        Form("broadcast of a row", lambda a: a.expand(n // 4096, 4096).clone() + 1, (bias,)),
        Form("sum of rows", lambda a: a.sum(-1), (rows,)),
        Form("sum of long rows", lambda a: a.sum(-1), (x.reshape(64, -1),)),
        Form("sum of odd rows", lambda a: a.sum(-1), (odd,)),
        Form("sum of columns", lambda a: a.sum(0), (x,)),
        Form("sum of the middle", lambda a: a.sum(1), (cube,)),
        Form("sum of few columns", lambda a: a.sum(0), (torch.randn(n // 64, 64),)),
        Form("sum of all", lambda a: a.sum(), (x,)),
        Form("mean of maps", lambda a: a.mean((2, 3)), (image,)),
        Form("mean of maps, channels last", lambda a: a.mean((1, 2)), (last,)),
        Form("max of rows", lambda a: a.amax(-1), (rows,)),
        Form("max of columns", lambda a: a.amax(0), (x,)),
        Form("argmax of rows", lambda a: a.argmax(-1), (rows,)),
        Form("argmax of columns", lambda a: a.argmax(0), (x,)),
        Form("variance of rows", lambda a: a.var(-1), (rows,)),
        Form("norm of all", lambda a: (a * a).sum().sqrt(), (x,)),
        Form("softmax of rows", lambda a: a.softmax(-1), (rows,)),
        Form("softmax of long rows", lambda a: a.softmax(-1), (x.reshape(64, -1),)),
        Form("softmax of columns", lambda a: a.softmax(0), (x,)),
        Form("softmax of the middle", lambda a: a.softmax(1), (cube,)),
        Form("log_softmax of rows", lambda a: a.log_softmax(-1), (odd,)),
        Form("layer_norm 768", lambda a, w: F.layer_norm(a, (768,), w, w), (hidden, weight)),
        Form("rms_norm 4096", lambda a, w: F.rms_norm(a, (4096,), w), (x, bias)),
        Form("group_norm", lambda a, w: F.group_norm(a, 32, w, w), (image, weight[:64].clone())),
        Form("batch norm, maps", lambda a, w: a * w[:, None, None] + w[:, None, None], (image, weight[:64].clone())),
        Form("transpose", lambda a: a.t().contiguous() + 0, (x,)),
        Form("transpose of batches", lambda a: a.transpose(1, 2).contiguous() + 0, (cube,)),
        Form("transpose, bf16", lambda a: a.t().contiguous(), (x.to(torch.bfloat16),)),
        Form("transpose, u8", lambda a: a.t().contiguous(), (x.to(torch.uint8),)),
        Form("transpose, f64", lambda a: a.t().contiguous(), (x[: len(x) // 2].double(),)),
        Form("heads to the front", lambda a: a.transpose(1, 2).contiguous(), (heads,)),
        Form("keys transposed", lambda a: a.permute(0, 2, 3, 1).contiguous(), (heads,)),
        Form("to channels last", lambda a: a.permute(0, 2, 3, 1).contiguous(), (image,)),
        Form("from channels last", lambda a: a.permute(0, 3, 1, 2).contiguous(), (last,)),
        Form("dimensions reversed", lambda a: a.permute(2, 1, 0).contiguous(), (cube,)),
        Form("add of a transposed", lambda a, b: a + b.t(), (square, square)),
        Form("embedding", lambda i, t: F.embedding(i, t), (ids, table), 2 * 4 * 768 * len(ids)),
        Form("index_select of columns", lambda a, i: a.index_select(1, i), (x, torch.randperm(4096)), 2 * half * 2),
        Form("gather along rows", lambda a, i: a.gather(1, i), (left, torch.randint(0, 512, left.shape))),
        Form("concatenation of rows", lambda a, b: torch.cat([a, b], -1), (left, left)),
        Form("concatenation in front", lambda a, b: torch.cat([a, b], 0), (x, y)),
        Form("stack at the end", lambda a, b: torch.stack([a, b], -1), (x, y)),
        Form("padding", lambda a: F.pad(a, (1, 1, 1, 1)), (image,)),
        Form("roll", lambda a: torch.roll(a, (3,), (1,)), (x,)),
        Form("flip of rows", lambda a: a.flip(-1), (x,)),
        Form("every second", lambda a: a[:, ::2].contiguous() + 0, (x,), half * 3),
        Form("nearest twice as large", lambda a: F.interpolate(a, scale_factor=2.0), (image[: len(image) // 4],)),
        Form("pixel shuffle", lambda a: F.pixel_shuffle(a, 2) + 0, (image,)),
        Form("pixel shuffle, copied", lambda a: F.pixel_shuffle(a, 2), (image,)),
        Form("pixel shuffle, bf16", lambda a: F.pixel_shuffle(a, 2), (image.to(torch.bfloat16),)),
        Form("pixel unshuffle", lambda a: F.pixel_unshuffle(a, 2), (image,)),
        Form("roll, bf16", lambda a: torch.roll(a, (3,), (1,)), (x.to(torch.bfloat16),)),
        Form("roll of windows", lambda a: torch.roll(a, (-3, -3), (1, 2)), (last,)),
        Form("patches", patches, (torch.randn(n // (3 * 224 * 224), 3, 224, 224),)),
        Form("rope of pairs", rope_of_pairs, (heads, torch.randn(128, 1, 32), torch.randn(128, 1, 32))),
        Form("rope", rope, (heads, torch.randn(128, 1, 64), torch.randn(128, 1, 64))),
    ]  # fmt: skip


def patches(images: torch.Tensor) -> torch.Tensor:
    return images.reshape(-1, 3, 14, 16, 14, 16).permute(0, 2, 4, 3, 5, 1).reshape(-1, 196, 768)


def rope_of_pairs(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = q[..., ::2], q[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def rope(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = q.shape[-1] // 2
    turned = torch.cat([-q[..., half:], q[..., :half]], -1)
    return q * cos + turned * sin


ROOFS = r"""
#include <string.h>
#include <time.h>
#include <thread>
#include <vector>
#include "mycc/math.h"
using namespace mycc;
static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
template <class F> static double best_of(int threads, int64_t n, F part) {
  double best = 1e30;
  for (int round = 0; round < 7; ++round) {
    const double start = now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back([=] { part(n * t / threads, n * (t + 1) / threads); });
    part(0, n / threads);
    for (auto &o : others) o.join();
    const double taken = now() - start;
    if (taken < best) best = taken;
  }
  return best;
}
extern "C" double roof_copy(float *to, const float *from, int64_t n, int threads) {
  const double plain = best_of(threads, n / 64, [=](int64_t begin, int64_t end) {
    for (int64_t i = 64 * begin; i < 64 * end; i += W) store(to + i, load(from + i));
  });
  const double libc = best_of(threads, n / 64, [=](int64_t begin, int64_t end) {
    memcpy(to + 64 * begin, from + 64 * begin, (size_t)(end - begin) * 256);
  });
  return plain < libc ? plain : libc;
}
extern "C" double roof_read(float *to, const float *from, int64_t n, int threads) {
  return best_of(threads, n / 64, [=](int64_t begin, int64_t end) {
    vf32 a = {}, b = {}, c = {}, d = {};
    for (int64_t i = 64 * begin; i + 4 * W <= 64 * end; i += 4 * W) {
      a += load(from + i), b += load(from + i + W), c += load(from + i + 2 * W), d += load(from + i + 3 * W);
    }
    store(to + 64 * begin, a + b + c + d);
  });
}
/* Seconds of one cycle: a multiplication waits three for its operand. */
extern "C" double cycle() {
#if defined(__x86_64__)
  int64_t z = 1;
  double best = 1e30;
  for (int round = 0; round < 9; ++round) {
    const double start = now();
    for (int i = 0; i < 300000; ++i) __asm__ volatile("imul $3, %0, %0" : "+r"(z));
    const double taken = now() - start;
    if (taken < best) best = taken;
  }
  return best / 900000;
#else
  return 0;
#endif
}
template <class F> static double seconds_per_element(F f) {
  constexpr int N = 4096;
  alignas(64) static float x[N], y[N];
  for (int i = 0; i < N; ++i) x[i] = -4 + 8.0f * (float)((i * 2654435761u) >> 8) / 16777216.0f;
  double best = 1e30;
  for (int round = 0; round < 20; ++round) {
    const double start = now();
    for (int k = 0; k < 20; ++k) {
      for (int i = 0; i < N; i += W) store(y + i, f(load(x + i)));
      __asm__ volatile("" ::: "memory");
    }
    const double taken = (now() - start) / 20 / N;
    if (taken < best) best = taken;
  }
  return best;
}
"""


def compiled_roofs(target: str, folder: Path) -> ctypes.CDLL:
    plain = (op for op in OPS.values() if not op.cpp.startswith("special_") and op.header != GPU_ALONE)
    rows = [op for op in plain if "f" in op.accepts and op.result == "same" and op.arity <= 2]
    lines = [ROOFS]
    for op in rows:
        text = spell(op, "cpp", [Printed("x"), Printed("splat(1.7f)")][: op.arity]).text
        body = f"return seconds_per_element([](vf32 x) MYCC_INLINED -> vf32 {{ return {text}; }});"
        lines.append(f'extern "C" double math_{op.name}() {{ {body} }}')
    (folder / "roofs.cpp").write_text("\n".join(lines))
    flags = [*FLAGS, *parse_targets(target)[0].flags]
    subprocess.run(["g++", *flags, str(folder / "roofs.cpp"), "-o", str(folder / "roofs.so")], check=True)
    library = ctypes.CDLL(str(folder / "roofs.so"))
    for name in ("roof_copy", "roof_read", "cycle", *(f"math_{op.name}" for op in rows)):
        getattr(library, name).restype = ctypes.c_double
    return library


def math_table(library: ctypes.CDLL, only: str) -> None:
    cycle = library.cycle()
    for op in OPS.values():
        if only in op.name and hasattr(library, f"math_{op.name}"):
            spent = getattr(library, f"math_{op.name}")()
            cycles = f"{spent / cycle:7.2f} cycles" if cycle else ""
            print(f"{op.name:14} {1e9 * spent:7.3f} ns {cycles}")


def bandwidths(library: ctypes.CDLL, megabytes: int, threads: int) -> tuple[float, float]:
    """Copy (bytes read and written) and read, in GB/s."""
    a, b = torch.zeros(megabytes << 18), torch.zeros(megabytes << 18)
    args = (ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr()), ctypes.c_int64(a.numel()), threads)
    return 8 * a.numel() / library.roof_copy(*args) / 1e9, 4 * a.numel() / library.roof_read(*args) / 1e9


def nbytes(x: Any) -> int:
    return sum(nbytes(y) for y in x) if isinstance(x, (tuple, list)) else x.numel() * x.element_size()


def time_eager(form: Form, runs: int) -> float:
    least = float("inf")
    with torch.inference_mode():
        for _ in range(runs + 1):
            start = time.perf_counter()
            form.function(*form.inputs)
            least = min(least, time.perf_counter() - start)
    return least


def time_mycc(entry: Any, form: Form, runs: int) -> float:
    """The best of three profiles of `runs` runs, all kernels together."""
    return min(sum(entry.profile(list(form.inputs), runs)) for _ in range(3)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="forms whose name contains one of these, with commas between")
    parser.add_argument("--megabytes", type=int, default=64, help="of a large operand")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--math", action="store_true")
    parser.add_argument("--no-eager", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="mycc-bench-") as folder:
        library = compiled_roofs(options.target, Path(folder))
        if options.math:
            math_table(library, options.only)
            return
        chosen = [f for f in forms(options.megabytes) if any(o in f.name for o in options.only.split(","))]
        entries: dict[str, Any] = {f"form{i}": (Module(f.function), f.inputs) for i, f in enumerate(chosen)}
        path = mycc.compile(entries, out=Path(folder) / "loops.pkg", verify=False, target=options.target)
        model = mycc.load(path, threads=options.threads)
    copy, read = bandwidths(library, options.megabytes, options.threads)
    print(f"copy {copy:.1f} GB/s, read {read:.1f} GB/s, {options.threads} threads")
    for i, form in enumerate(chosen):
        entry = model.entry(f"form{i}")
        spent = time_mycc(entry, form, options.runs)
        moved = form.moved or nbytes(form.inputs) + nbytes(form.function(*form.inputs))
        kernels = len(entry.profile(list(form.inputs), 1))
        eager = "" if options.no_eager else f"   eager {1e3 * time_eager(form, options.runs):8.2f} ms"
        rate = moved / spent / 1e9
        print(
            f"{form.name:28} {1e3 * spent:8.2f} ms {rate:6.1f} GB/s {100 * rate / copy:4.0f} %  {kernels}{eager}",
            flush=True,
        )


if __name__ == "__main__":
    main()
