"""How long a compile for GPUs takes on a machine that has none, with an empty cache: one target, and two."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from .common import Figure, Settings, at_most, worker

COLD = {"bert": 40.0, "resnet50": 60.0}
ONE, TWO = "cuda:sm_90", "cuda:sm_90,cuda:sm_100"
CODE_MB = 5.0  # everything but weights, for each target


def run(settings: Settings) -> Iterator[Figure]:
    for model in settings.models:
        if model not in COLD:
            continue
        one, two = (_compiled(settings, model, targets) for targets in (ONE, TWO))
        by_stage = ", ".join(f"{name} {seconds:.1f}" for name, seconds in one["stages"].items())
        yield at_most("compile-gpu", f"{model} for {ONE}, cold cache", one["seconds"], COLD[model], "s", note=by_stage)
        ratio = two["seconds"] / one["seconds"]
        yield at_most("compile-gpu", f"{model}, two targets / one", ratio, 2.0, note=f"{two['seconds']:.1f} s")
        yield at_most("compile-gpu", f"{model}, all but weights", one["code"] / 1e6, CODE_MB, "MB")


def _compiled(settings: Settings, model: str, targets: str) -> dict[str, Any]:
    cache, path = settings.folder / f"cache-{model}-gpu", settings.folder / f"{model}-gpu.pkg"
    shutil.rmtree(cache, ignore_errors=True)
    facts = worker("compile_model", model, "static", path, cache, targets, "bf16")
    return facts | {"code": path.stat().st_size - _weights(path)}


def _weights(package: Any) -> int:
    from mycc.runtime.archive import Archive

    return Archive(package).manifest["weights"]["size"]  # type: ignore[no-any-return]
