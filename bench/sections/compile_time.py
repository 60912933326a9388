"""How long a compile takes: with an empty cache, again with a warm one, and its lowering and scheduling."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from .common import Figure, Settings, at_most

COLD = {"mlp": 5.0, "resnet50": 8.0, "bert": 10.0, "gpt2": 12.0}
WARM = {"mlp": 2.0, "resnet50": 2.0, "bert": 4.0}  # beyond torch.export's own time
LOWERING = {"bert": 1.0}
# AOTInductor on the reference machine, two cores, cold, seconds.
KNOWN = {"mlp": {"aoti": 14.0}, "resnet50": {"aoti": 27.0}, "bert": {"aoti": 38.0}}


def run(settings: Settings) -> Iterator[Figure]:
    for model in settings.models:
        yield from _model(settings, model)


def _model(settings: Settings, model: str) -> Iterator[Figure]:
    cache, path = settings.folder / f"cache-{model}", settings.folder / f"{model}-static.pkg"
    shutil.rmtree(cache, ignore_errors=True)
    cold = settings.compile(model, "static", path, cache)
    stages = cold["stages"]
    by_stage = ", ".join(f"{name} {seconds:.1f}" for name, seconds in stages.items())
    yield _figure(f"{model}, cold cache", cold["seconds"], COLD.get(model), by_stage, KNOWN.get(model, {}))
    warm = settings.compile(model, "static", path, cache)
    beyond = warm["seconds"] - warm["export"]
    yield _figure(f"{model}, warm cache, beyond torch.export", beyond, WARM.get(model), f"export {warm['export']:.1f}")
    lowering = stages["lower"] + stages["schedule"]
    yield _figure(f"{model}, lowering and scheduling", lowering, LOWERING.get(model))


def _figure(
    name: str, value: float, limit: float | None, note: str = "", peers: dict[str, float] | None = None
) -> Figure:
    if limit is None:
        return Figure("compile", name, value, "s", note=note, peers=peers or {})
    return at_most("compile", name, value, limit, "s", note=note, peers=peers or {})
