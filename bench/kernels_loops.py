"""GB/s of loop kernels (maps, reductions, norms, permutations, gathers) beside the measured bandwidth of a plain copy.

    python bench/kernels_loops.py [--threads 1] [--only softmax] [--megabytes 64] [--cached 4] [--no-eager]

Every form is compiled as a model of its own entry point and timed by the runtime's profile, outputs already in place.
Bytes are those of the operands that are read and of the results, each once; the percentage is of the bandwidth of a
copy in turn with the form, which counts bytes read and written too: the median over the rounds, for a machine's
bandwidth changes within seconds. Runs of a form that are timed come behind others of its own, not behind the copy.
Eager torch is timed beside it, writing into memory that it has.
In brackets is the same form with operands of `--cached` MiB, which lie in a cache: what the kernel's own instructions
allow, as a percentage of the same copy from memory. Below 125 % there, a form is not bound by memory alone.
Forms that memory alone binds and that come out below 80 % are timed again at the end, in another minute; the last line
counts the better of both.
`--math` shows cycles per element of the operator table's float32 functions in the first level cache instead.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mycc
import torch
from choice_forms import choices
from loop_forms import Form, Function, forms
from mycc.compiler.codegen.cpu.machine_header import MACHINE, render_machine
from mycc.compiler.ir.ops import GPU_ALONE, OPS, Printed, spell
from mycc.compiler.machine.targets import parse_targets
from reduction_forms import reductions

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 9
WARM = 2  # runs before the timed ones: the lines that a copy has written leave the caches meanwhile
#: percent of a copy that a form reaches, and with its operands in a cache where memory alone binds it
WANTED, BOUND = 80, 125
FLAGS = [
    *("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fno-trapping-math", "-fwrapv"),
    *("-ffp-contract=off", "-Wno-psabi", "-shared", "-fPIC", "-pthread"),
    *(f"-I{folder}" for folder in (ROOT / "runtime" / "include", ROOT)),
]


ROOFS = r"""
#include <string.h>
#include <time.h>
#include <thread>
#include <vector>
#include "kernels/math/math.h"
using namespace mycc;
static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
template <class F> static double best_of(int threads, int64_t n, F part) {
  double best = 1e30;
  for (int round = 0; round < 3; ++round) {
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
    (folder / MACHINE).write_text(render_machine(parse_targets(target)[0].tiles))
    subprocess.run(
        ["g++", *flags, f"-I{folder}", str(folder / "roofs.cpp"), "-o", str(folder / "roofs.so")], check=True
    )
    library = ctypes.CDLL(str(folder / "roofs.so"))
    for name in ("roof_copy", "cycle", *(f"math_{op.name}" for op in rows)):
        getattr(library, name).restype = ctypes.c_double
    return library


def math_table(library: ctypes.CDLL, only: str) -> None:
    cycle = library.cycle()
    for op in OPS.values():
        if only in op.name and hasattr(library, f"math_{op.name}"):
            spent = getattr(library, f"math_{op.name}")()
            cycles = f"{spent / cycle:7.2f} cycles" if cycle else ""
            print(f"{op.name:14} {1e9 * spent:7.3f} ns {cycles}")


def copying(library: ctypes.CDLL, megabytes: int, threads: int) -> Callable[[], float]:
    """A function that copies an operand three times; it gives the best one's seconds per byte read and written."""
    a, b = torch.zeros(megabytes << 18), torch.zeros(megabytes << 18)
    args = (ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr()), ctypes.c_int64(a.numel()), threads)
    kept = (a, b)  # the function outlives this frame
    return lambda: library.roof_copy(*args) / (8 * len(kept[0]))


def nbytes(x: Any) -> int:
    return sum(nbytes(y) for y in x) if isinstance(x, (tuple, list)) else x.numel() * x.element_size()


def moved(form: Form) -> int:
    return form.moved or nbytes(form.inputs) + nbytes(form.function(*form.inputs))


def listed_forms(megabytes: int, only: str) -> list[Form]:
    """The forms whose name contains one of the texts in `only`, which have commas between them."""
    listed = [*forms(megabytes), *reductions(megabytes), *choices(megabytes)]
    return [form for form in listed if any(text in form.name for text in only.split(","))]


def time_eager(form: Form, runs: int) -> float:
    least = float("inf")
    with torch.inference_mode():
        for _ in range(runs + 1):
            start = time.perf_counter()
            form.function(*form.inputs)
            least = min(least, time.perf_counter() - start)
    return least


def time_mycc(entry: Any, form: Form, runs: int, copy: Callable[[], float]) -> tuple[float, float]:
    """Seconds of a run, all kernels together, and of a copied byte: medians of runs and copies in turn."""
    spent, copies = [], []
    for _ in range(ROUNDS):
        copies.append(copy())
        entry.profile(list(form.inputs), WARM)
        spent.append(sum(entry.profile(list(form.inputs), runs)) / 1e9)
    return statistics.median(spent), statistics.median(copies)


@dataclass(frozen=True)
class Row:
    """A form's seconds and bytes; percent of a copy, and that of the form with its operands in a cache."""

    name: str
    spent: float
    moved: int
    percent: float
    cached: float
    kernels: int

    def __str__(self) -> str:
        timed = f"{1e3 * self.spent:8.2f} ms {self.moved / self.spent / 1e9:6.1f} GB/s {self.percent:4.0f} %"
        return f"{self.name:28} {timed} ({self.cached:4.0f} %)  {self.kernels}"

    @property
    def below(self) -> bool:
        """Whether memory alone binds it, and more than it should."""
        return round(self.percent) < WANTED and round(self.cached) >= BOUND


def timed_row(entry: Any, cached: Any, form: Form, small: Form, runs: int, copy: Callable[[], float]) -> Row:
    """entry, cached: of the form and the same with small operands."""
    spent, byte = time_mycc(entry, form, runs, copy)
    near, _ = time_mycc(cached, small, 4 * runs, lambda: 0.0)
    kernels = len(entry.profile(list(form.inputs), 1))
    return Row(
        form.name, spent, moved(form), 100 * moved(form) * byte / spent, 100 * moved(small) * byte / near, kernels
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="forms whose name contains one of these, with commas between")
    parser.add_argument("--megabytes", type=int, default=64, help="of a large operand")
    parser.add_argument("--cached", type=int, default=4, help="of a large operand that lies in a cache")
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
        chosen = [listed_forms(size, options.only) for size in (options.megabytes, options.cached)]
        entries: dict[str, Any] = {
            f"{size}{i}": (Function(f.function), f.inputs)
            for size, listed in zip(("form", "small"), chosen, strict=True)
            for i, f in enumerate(listed)
        }
        path = mycc.compile(entries, out=Path(folder) / "loops.pkg", verify=False, target=options.target)
        model = mycc.load(path, threads=options.threads)
    copy = copying(library, options.megabytes, options.threads)
    print(f"copy {1e-9 / copy():.1f} GB/s, {options.threads} threads")
    rows = []
    for i, (form, small) in enumerate(zip(*chosen, strict=True)):
        rows.append(timed_row(model.entry(f"form{i}"), model.entry(f"small{i}"), form, small, options.runs, copy))
        eager = "" if options.no_eager else f"   eager {1e3 * time_eager(form, options.runs):8.2f} ms"
        print(f"{rows[-1]}{eager}", flush=True)
    for i, row in enumerate(rows):
        if row.below:
            twice = (model.entry(f"{size}{i}") for size in ("form", "small"))
            again = timed_row(*twice, *(listed[i] for listed in chosen), options.runs, copy)
            rows[i] = max(row, again, key=lambda r: r.percent)
            print(f"{again}   again", flush=True)
    reached, below = sum(round(row.percent) >= WANTED for row in rows), sum(row.below for row in rows)
    others = f"{len(rows) - reached - below} not bound by memory alone, {below} below"
    print(f"{reached} of {len(rows)} forms at {WANTED} %, {others}")


if __name__ == "__main__":
    main()
