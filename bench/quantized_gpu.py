"""Quantised weights on a GPU: kernels of few rows by tiles, a step of generation, and float8 products of a prompt.

    python bench/quantized_gpu.py [--sections kernels,decode,prefill] [--match '^1x.*int4'] [--json FILE] [--layers 16]
        [--jobs 12]

kernels: products of 1, 4 and 16 rows with the weights of a Llama of 1 B (hidden 2048, 32:8 heads, 8192, vocabulary
128256) as bf16, int8 and int4 by groups of 64 and 128; every tile is compared with float64 and timed with cold weights
in a CUDA graph. decode: packages of that model (a step behind 64 positions; embedding and head quantised too), checked
against the same arithmetic in float32 and timed. prefill: a layer of a Llama of 8 B, 2048 tokens, bf16 and float8 by
rows. Shares are of the bandwidth of a copy in the same run, of the bytes of all weights that a step reads.

Needs torch, triton and mycc importable; no network. Three packages are built side by side in processes of their own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from gpu_kernels import CHIP, COLD, Runner, alone, compile_all, timed
from mycc.compiler.codegen.cuda.generate import launches_of
from mycc.compiler.codegen.cuda.probe import Probe, gemm_probe, quantised_probe
from mycc.compiler.ir.dtypes import to_torch
from mycc.compiler.ir.plans.tiles import GemmTile
from mycc.compiler.schedule.gpu.fit import misfit
from mycc.compiler.schedule.gpu.product_plans import chosen_tile
from torch import Tensor, nn

TARGET = "cuda:sm_90"
HIDDEN, HEADS, KV_HEADS, INNER, VOCABULARY, LENGTH = 2048, 32, 8, 8192, 128256, 640
#: outputs and inputs of the model's weights
SHAPES = ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192), (128256, 2048))
ROWS = (1, 16)
FORMATS = {"bf16": "", "int8": "int8", "int4": "int4:group=128"}
#: error of a product against float64, relative in the norm
TOLERANCE = 6e-3


# the machine ---------------------------------------------------------------------------------------------------------
def copy_bandwidth() -> float:
    """Bytes a second of a copy of 4 GB, read and written, on a GPU that is warm."""
    x = torch.empty(1 << 31, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x)
    begin = time.perf_counter()
    while time.perf_counter() - begin < 1.0:
        y.copy_(x)
        torch.cuda.synchronize()
    return 2 * x.nbytes / (timed([lambda: y.copy_(x)]) * 1e-6)


# kernels -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    name: str
    probe: Probe
    bytes: float
    tiles: tuple[GemmTile | None, ...]


def vector_tiles(n: int, k: int) -> Iterator[GemmTile]:
    for columns, step, split in ((c, s, p) for c in (4, 8, 16) for s in (512, 1024) for p in (1, 2, 4)):
        if k // (step * split) and 264 <= n // columns * split <= 20000:
            yield GemmTile(1, columns, step, 4, 3, split, vector=True)


def tensor_core_tiles(n: int, words: int, steps: tuple[int, ...]) -> Iterator[GemmTile]:
    forms = ((4, 3), (4, 5), (2, 4))  # warps and stages
    for columns, step, split, form in itertools.product((16, 32, 64, 128), steps, (1, 2, 4, 8), forms):
        if words // (step * split) and 128 <= n // columns * split <= 2100 and (form[0] == 4 or columns < 128):
            yield GemmTile(16, columns, step, form[0], form[1], split)


def cases() -> Iterator[Case]:
    for m, (n, k) in ((m, shape) for m in ROWS for shape in SHAPES):
        name, rest = f"{m}x{n}x{k}", 2.0 * m * (n + k)
        if m > 1 and n in (2048, 128256) and k == 2048:
            continue
        first = vector_tiles(n, k) if m == 1 else ()
        yield Case(f"{name} bf16", gemm_probe(m, n, k, "bf16"), 2.0 * n * k + rest, (None,))
        few = tuple(tensor_core_tiles(n, k, (128, 256) if m == 1 else (128,)))
        yield Case(f"{name} int8", quantised_probe(m, n, k, "bf16", 8), n * k + 2.0 * n + rest, (None, *first, *few))
        for group in (64, 128) if m == 1 else (128,):
            planes = tuple(tensor_core_tiles(n, k // 4, (64,)))
            size = n * k * (0.5 + 2 / group) + rest
            probe = quantised_probe(m, n, k, "bf16", 4, group, 64)
            yield Case(f"{name} int4 by {group}", probe, size, (None, *planes))


def kernels(options: argparse.Namespace, copy: float) -> list[dict[str, Any]]:
    found = []
    every = [case for case in cases() if re.search(options.match, case.name)]
    launches = {}
    for case in every:
        node: Any = case.probe.node
        for tile in case.tiles:
            if tile is None or not misfit(node, tile):
                launches[case.name, tile] = launches_of(node, CHIP, "product", tile)
    failed = compile_all({launch.kernel for own in launches.values() for launch in own}, options.jobs)
    print(f"{len(launches)} kernels compiled, {len(failed)} failed {failed[:2]}", flush=True)
    for case in every:
        rows = []
        tensors = memory_of(case.probe)
        want = case.probe.reference({name: t.double() for name, t in tensors.items()})
        shared = {
            "work": torch.zeros(1 << 26, device="cuda"),
            "zeros": torch.zeros(1 << 20, dtype=torch.int32, device="cuda"),
        }
        copies = max(1, min(24, round(COLD / case.bytes)))
        weights = [tensors["b"].clone() for _ in range(copies)]
        for tile in case.tiles:
            own = launches.get((case.name, tile))
            if own is None:
                continue
            try:
                runs = [Runner(own, memory(case.probe, {**tensors, "b": w}), shared) for w in weights]
                runs[0]()
                error = float((tensors["y"].double() - want).norm() / want.norm())
                tensors["y"].zero_()
                time_us = timed(runs)
            except Exception as problem:
                print(f"{case.name} {tile}: {type(problem).__name__} {str(problem)[:100]}")
                continue
            shown = tile or chosen_tile(case.probe.node, CHIP)
            row = {
                "case": case.name,
                "tile": f"{shown} w{shown.warps} s{shown.stages}",
                "chosen": tile is None,
                "us": time_us,
                "error": error,
            }
            rows.append({**row, "share": case.bytes / (time_us * 1e-6) / copy, "registers": runs[0].registers})
        rows.sort(key=lambda r: r["us"])
        for row in [*rows[:4], *(r for r in rows[4:] if r["chosen"])]:
            wrong = "  WRONG" if row["error"] > TOLERANCE else ""
            print(
                f"{row['case']:28} {row['us']:8.2f} us  {100 * row['share']:4.0f} % of copy  {row['tile']}"
                f"{'  chosen' if row['chosen'] else ''}  {row['registers']} registers  {row['error']:.1e}{wrong}",
                flush=True,
            )
        found += rows
        bad = [r for r in rows if r["error"] > TOLERANCE]
        if bad:
            print(f"  {len(bad)} of {len(rows)} tiles are wrong: {[r['tile'] for r in bad][:6]}")
    return found


def memory_of(probe: Probe) -> dict[str, Tensor]:
    """Random operands on the device."""
    generator = torch.Generator("cuda").manual_seed(0)
    found = {}
    for name, shape in probe.shapes.items():
        dtype, size = to_torch(probe.buffers[name].dtype), [s.evaluate({}) for s in shape]
        if dtype in (torch.int8, torch.uint8):
            low, high = (-128, 128) if dtype == torch.int8 else (0, 256)
            found[name] = torch.randint(low, high, size, dtype=dtype, device="cuda", generator=generator)
        else:
            values = torch.randn(size, device="cuda", generator=generator)
            found[name] = (values.abs() * 0.02 if name == "scales" else values).to(dtype)
    return found


def memory(probe: Probe, tensors: dict[str, Tensor]) -> dict[Any, Tensor]:
    return {probe.buffers[name]: t.reshape(-1) for name, t in tensors.items()}


# a step of generation ------------------------------------------------------------------------------------------------
def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Layer(nn.Module):
    """A layer of a Llama with its cache."""

    def __init__(self, hidden: int, heads: int, kv: int, inner: int, length: int) -> None:
        super().__init__()
        self.heads, self.kv, size = heads, kv, hidden // heads
        self.norm, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q, self.o = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, kv * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, kv, length, size))

    def forward(self, x: Tensor, at: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        y = self.norm(x)
        q, k, v = (
            f(y).unflatten(-1, (n, -1)).transpose(1, 2)
            for f, n in ((self.q, self.heads), (self.k, self.kv), (self.v, self.kv))
        )
        self.keys.index_copy_(2, at, turned(k, cos, sin))
        self.values.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(turned(q, cos, sin), self.keys, self.values, mask, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """One token more: tokens [1, 1], at [1] -> scores [1, 1, vocabulary]."""

    def __init__(
        self,
        layers: int,
        hidden: int = HIDDEN,
        heads: int = HEADS,
        kv: int = KV_HEADS,
        inner: int = INNER,
        words: int = VOCABULARY,
    ) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, hidden), nn.Linear(hidden, words, bias=False)
        self.layers = nn.ModuleList(Layer(hidden, heads, kv, inner, LENGTH) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        size = hidden // heads
        self.register_buffer("rates", 500000.0 ** (-torch.arange(size // 2) / (size // 2)))

    def forward(self, tokens: Tensor, at: Tensor) -> Tensor:
        x = self.embed(tokens)
        angles = at[:, None].float() * self.rates.float()
        cos, sin = (torch.cat((f(angles), f(angles)), -1).to(x.dtype) for f in (torch.cos, torch.sin))
        mask = (torch.arange(LENGTH, device=at.device) <= at)[None, None, None, :]
        for layer in self.layers:
            x = layer(x, at, cos, sin, mask)
        return self.head(self.norm(x))


def decoder(layers: int, small: bool = False) -> Decoder:
    torch.manual_seed(0)
    model = Decoder(layers, 512, 8, 2, 1536, 4096) if small else Decoder(layers)
    return model.eval().to(torch.bfloat16)


def step_inputs() -> tuple[Tensor, Tensor]:
    return torch.tensor([[7]]), torch.tensor([64])


def build(name: str, layers: int, path: str) -> None:
    """A package of the model in a format, in this process; and a small one of two layers, which is verified."""
    import mycc

    begin = time.perf_counter()
    quantize = FORMATS[name] or None
    mycc.compile(decoder(layers), step_inputs(), out=path, target=TARGET, quantize=quantize, verify=False)
    print(f"{name}: built in {time.perf_counter() - begin:.0f} s, {Path(path).stat().st_size / 1e6:.0f} MB", flush=True)


def small_checks() -> None:
    """Packages of a small model, verified by mycc on this device against float64."""
    import mycc

    for quantize in ("int8", "int4:group=64", "int8-dynamic"):
        with tempfile.TemporaryDirectory() as folder:
            try:
                mycc.compile(decoder(2, True), step_inputs(), out=f"{folder}/m.pkg", target=TARGET, quantize=quantize)
                print(f"verified on the device: {quantize}", flush=True)
            except Exception as error:
                print(f"NOT VERIFIED: {quantize}: {str(error)[:600]}", flush=True)


def decode(options: argparse.Namespace, copy: float, folder: Path, builders: dict[str, Any]) -> list[dict[str, Any]]:
    given = tuple(t.cuda() for t in step_inputs())
    reference = decoder(options.layers).float().cuda()(*given).detach().double().flatten()
    torch.cuda.empty_cache()
    found = []
    for name, process in builders.items():
        if process.wait() != 0:
            print(f"{name}: the package was not built")
            continue
        try:
            spent, error = step_of(folder / f"{name}.pkg", given, reference)
        except Exception as problem:
            print(f"{name}: {type(problem).__name__}: {str(problem)[:500]}")
            continue
        size = weight_bytes(options.layers, name)
        share = size / (spent * 1e-6) / copy
        found.append({"format": name, "us": spent, "share": share, "error": error, "bytes": size})
        print(
            f"decode {name:6} {spent:8.1f} us a step, {1e6 / spent:6.0f} tokens/s, {100 * share:.0f} % of copy,"
            f" {size / 1e9:.2f} GB, {error:.1e} from floats",
            flush=True,
        )
    return found


def step_of(path: Path, given: tuple[Tensor, ...], reference: Tensor) -> tuple[float, float]:
    """Microseconds of a step of a package, and how far its scores are from the reference's."""
    import mycc

    package = mycc.load(path)
    y = package(*given)
    y = (y[0] if isinstance(y, (tuple, list)) else y).double().flatten()
    error = float((y - reference).norm() / reference.norm())
    with alone():
        spent = step_us(lambda: package(*given))
    kernels_of(package, given)
    return spent, error


def weight_bytes(layers: int, name: str) -> float:
    """Bytes that a step reads of weights: all but the embedding's, scales with them."""
    size = HIDDEN // HEADS
    own = HIDDEN * (2 * HIDDEN + 2 * KV_HEADS * size + 3 * INNER)
    return (layers * own + HIDDEN * VOCABULARY) * {"bf16": 2.0, "int8": 1.0, "int4": 0.5 + 2 / 128}[name]


def step_us(call: Callable[[], Any], calls: int = 100) -> float:
    """Microseconds of a call among many; the median of rounds."""
    for _ in range(10):
        call()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


def kernels_of(call: Callable[..., Any], given: tuple[Tensor, ...]) -> None:
    """What the kernels of a call add to its time, the longest first: what each takes behind the end of those before it,
    as kernels that are launched early wait for them."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(10):
                call(*given)
            torch.cuda.synchronize()
        own, count, ended = Counter[str](), Counter[str](), 0.0
        for event in sorted(seen.events(), key=lambda e: e.time_range.start):
            begin, end = event.time_range.start, event.time_range.end
            if end <= begin or event.device_type != torch.autograd.DeviceType.CUDA:
                continue
            own[event.name] += max(0.0, end - max(begin, ended))
            count[event.name] += 1
            ended = max(ended, end)
        for name, spent in own.most_common(16):
            print(f"    {spent / 10:8.1f} us  {count[name] / 10:5.0f} x  {name[:70]}")
        print(f"    {own.total() / 10:8.1f} us in all", flush=True)
    except Exception as error:
        print(f"    no profile: {str(error)[:100]}")


# a prompt ------------------------------------------------------------------------------------------------------------
class Float8Linear(nn.Module):
    """A linear layer whose weight, and whose input in each call, are float8 with a scale of each row."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(1, keepdim=True) / 448
        self.register_buffer("weight", (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        scale = rows.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / 448
        q = (rows.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        y = torch._scaled_mm(q, self.weight.t(), scale, self.scale.t(), out_dtype=torch.bfloat16, use_fast_accum=True)
        return y.unflatten(0, x.shape[:-1])


class PromptLayer(nn.Module):
    """A layer of a Llama of 8 B on a whole prompt, without its rotations; x [1, tokens, 4096]."""

    def __init__(self, hidden: int = 4096, heads: int = 32, kv: int = 8, inner: int = 14336) -> None:
        super().__init__()
        self.heads, self.kv, self.size, self.inner = heads, kv, hidden // heads, inner
        self.norm, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.qkv = nn.Linear(hidden, hidden + 2 * kv * self.size, bias=False)
        self.o, self.down = nn.Linear(hidden, hidden, bias=False), nn.Linear(inner, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.qkv(self.norm(x)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        q, k, v = y.split((self.heads, self.kv, self.kv), 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def prompt_layer(float8: bool, small: bool = False) -> PromptLayer:
    torch.manual_seed(0)
    layer = (PromptLayer(256, 4, 2, 512) if small else PromptLayer()).eval().to(torch.bfloat16)
    if float8:
        for name in ("qkv", "o", "gate_up", "down"):
            setattr(layer, name, Float8Linear(getattr(layer, name)))
    return layer


def prefill(copy: float) -> list[dict[str, Any]]:
    """A layer of bf16 and of float8: error against float32 arithmetic of the same layer, and time."""
    import mycc

    torch.manual_seed(1)
    x, found = torch.randn(1, 2048, 4096, dtype=torch.bfloat16), []
    given = (x.cuda(),)
    for name in ("bf16", "fp8"):
        layer = prompt_layer(name == "fp8")
        want = layer.cuda()(*given).detach().double()
        with tempfile.TemporaryDirectory() as folder:
            path = mycc.compile(layer.cpu(), (x,), out=f"{folder}/m.pkg", target=TARGET, verify=False)
            package = mycc.load(path)
            y = package(*given).double()
            error = float((y - want).norm() / want.norm())
            with alone():
                spent = step_us(lambda: package(*given), 20)  # noqa: B023
            print(f"prefill {name:5} {spent:8.1f} us a layer of 2048 tokens, {error:.1e} from torch's own", flush=True)
            kernels_of(package, given)
        found.append({"format": name, "us": spent, "error": error})
    return found


def float8_products() -> list[dict[str, Any]]:
    """Products of the layer by tiles: microseconds, with float8 sums of a step and of all steps, beside bf16."""
    from mycc.compiler.codegen.cuda.generate import kernel_launches
    from mycc.compiler.codegen.cuda.probe import float8_probe
    from mycc.compiler.schedule.passes import Context
    from mycc.compiler.schedule.planning import plan_kernel
    from mycc.compiler.schedule.remarks import Remarks

    shared = {
        "work": torch.zeros(1 << 26, device="cuda"),
        "zeros": torch.zeros(1 << 20, dtype=torch.int32, device="cuda"),
    }
    tiles = [
        GemmTile(128, n, 128, w, s, descriptors=True)
        for n, w, s in ((256, 8, 3), (256, 8, 4), (128, 4, 4), (128, 8, 4), (192, 8, 4))
    ]
    tiles += [
        GemmTile(128, 256, 128, 8, 3, descriptors=True, halves=True),
        GemmTile(128, 256, 64, 8, 4, descriptors=True),
    ]
    jobs = {}
    for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)):
        probe: Any = float8_probe(2048, n, k)
        for tile, promoted in itertools.product(tiles, (True, False)):
            fields = {"tile": tile, **({} if promoted else {"promoted": 0})}
            if not misfit(probe.node, tile):
                kernel = plan_kernel(probe.node, Context(Remarks(), CHIP), fields)
                jobs[n, k, str(tile) + f" w{tile.warps} s{tile.stages}", promoted] = (
                    probe,
                    kernel_launches(kernel, "f8", CHIP),
                )
        probe = gemm_probe(2048, n, k, "bf16")
        jobs[n, k, "bf16", False] = (probe, launches_of(probe.node, CHIP, "bf16"))
    compile_all({launch.kernel for _, own in jobs.values() for launch in own}, 12)
    found = []
    for (n, k, name, promoted), (probe, own) in jobs.items():
        tensors = memory_of(probe)
        if probe.buffers["b"].dtype == "u8":
            for t in ("a", "b"):
                tensors[t] = torch.randn(tensors[t].shape, device="cuda").to(torch.float8_e4m3fn).view(torch.uint8)
        want = probe.reference({t: v.double() if v.dtype != torch.uint8 else v for t, v in tensors.items()})
        try:
            run = Runner(own, memory(probe, tensors), shared)
            run()
            error = float((tensors["y"].double() - want).norm() / want.norm())
            spent = timed([run] * 5)
        except Exception as problem:
            print(f"{n}x{k} {name}: {type(problem).__name__} {str(problem)[:100]}")
            continue
        rate = 2 * 2048 * n * k / spent / 1e6
        print(
            f"2048x{n}x{k} {name:36} {'promoted' if promoted else '':8} {spent:7.1f} us {rate:6.0f} TFLOP/s"
            f" {run.registers} registers {run.spills} spills {error:.1e}",
            flush=True,
        )
        found.append({"n": n, "k": k, "tile": name, "promoted": promoted, "us": spent, "error": error})
    return found


# the run -------------------------------------------------------------------------------------------------------------
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", default="kernels,decode,prefill")
    parser.add_argument("--json", default="")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--match", default="", help="a regular expression for the names of kernels")
    parser.add_argument("--formats", default="bf16,int8,int4")
    parser.add_argument("--build", nargs=2, metavar=("FORMAT", "FILE"), help="build one package and end")
    options = parser.parse_args()
    if options.build:
        build(*options.build[:1], options.layers, options.build[1])
        return
    sections, rows = options.sections.split(","), {}
    copy = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}: a copy moves {copy / 1e12:.2f} TB/s", flush=True)
    with tempfile.TemporaryDirectory(prefix="mycc-quantized-") as folder:
        builders = {}
        for name in options.formats.split(",") if "decode" in sections else ():
            command = [
                sys.executable,
                __file__,
                "--layers",
                str(options.layers),
                "--build",
                name,
                f"{folder}/{name}.pkg",
            ]
            builders[name] = subprocess.Popen(command)
        if "prefill" in sections:
            rows["float8"] = float8_products()
            rows["prefill"] = prefill(copy)
        if "kernels" in sections:
            rows["kernels"] = kernels(options, copy)
        if "decode" in sections:
            small_checks()
            rows["decode"] = decode(options, copy, Path(folder), builders)
    if options.json:
        Path(options.json).write_text(json.dumps({"copy": copy, **rows}), encoding="utf-8")


if __name__ == "__main__":
    main()
