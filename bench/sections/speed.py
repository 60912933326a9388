"""How fast models run at batch 1 beside eager torch and the other peers, and how near the machine's own limit.

Every peer is a process of its own; they run in turns, never two at once, and medians are compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from .common import Figure, Settings
from .comparisons import cases, geometric_mean, ratio_figure, threads_text

RATIO, MEAN = 1.05, 1.15
ROOF, ROOF_MODELS = 88.0, ("bert", "gpt2", "llama", "vit")  # percent, with one thread
RESNET = 91 / 76  # the best peer's time over the one to reach


def run(settings: Settings) -> Iterator[Figure]:
    ratios: dict[int, list[float]] = {threads: [] for threads in settings.threads}
    for model in settings.models:
        for case in cases(settings, model, package=True):
            where = f"{model}, {threads_text(case.threads)}"
            yield ratio_figure("speed", where, case, RESNET if model == "resnet50" and case.threads == 1 else RATIO)
            if case.ratio is not None:
                ratios[case.threads].append(case.ratio)
            percent = case.own.percent
            if model in ROOF_MODELS and case.threads == 1 and percent is not None:
                note = f"roof {case.roof:.0f} GFLOP/s, {case.gflop:.3g} GFLOP"
                yield Figure(
                    "speed", f"{where}, of the FMA roof", percent, "%", f">= {ROOF:g} %", percent >= ROOF, note
                )
    for threads, found in ratios.items():
        if len(found) > 1:
            mean, name = geometric_mean(found), f"geometric mean of {len(found)} models, {threads_text(threads)}"
            yield Figure("speed", name, mean, "", f">= {MEAN}", mean >= MEAN)
