"""A step of text generation: GPT-2 on one token with 128 cached positions. Its time is that of reading the weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .common import Figure, Settings, worker

BANDWIDTH, HALF = 85.0, 1.8  # percent of the measured read bandwidth; speed of bf16 weights over float32


def run(settings: Settings) -> Iterator[Figure]:
    if "gpt2" not in settings.models:
        return
    packages = {dtype: _package(settings, dtype) for dtype in ("f32", "bf16")}
    for threads in settings.threads:
        facts = worker("decode_step", *packages.values(), threads, settings.seconds, settings.turns)
        wide, narrow, bandwidth = facts["times"][0], facts["times"][1], facts["bandwidth"]
        percent = 100 * facts["share"]
        name = f"gpt2 decode step, {threads} thread{'s' if threads > 1 else ''}"
        note = f"{1e3 * wide:.4g} ms, {facts['bytes'][0] / 1e6:.0f} MB, read bandwidth {bandwidth:.1f} GB/s"
        goal, met = f">= {BANDWIDTH:g} %", percent >= BANDWIDTH
        yield Figure("decode", f"{name}, of the bandwidth", percent, "%", goal, met, note)
        ratio, note = wide / narrow, f"{1e3 * narrow:.4g} ms, {facts['bytes'][1] / 1e6:.0f} MB"
        yield Figure("decode", f"{name}, bf16 over float32", ratio, "", f">= {HALF}", ratio >= HALF, note)


def _package(settings: Settings, dtype: str) -> Path:
    """The package of zoo.decode_step() in a dtype, compiled on first use."""
    path = settings.folder / f"gpt2-decode-{dtype}.pkg"
    if not path.exists():
        import mycc
        from zoo import decode_step

        model, args = decode_step()
        options: dict[str, Any] = {} if dtype == "f32" else {"dtype": dtype}
        mycc.compile(model, args, out=path, cache_dir=settings.folder / "cache", **options)
    return path
