"""Larger work beside the peers: batch 8, and sequences of 512."""

from __future__ import annotations

from collections.abc import Iterator

from .common import Figure, Settings
from .comparisons import cases, ratio_figure, threads_text

RATIO = 1.0
BATCH, BATCH_MODELS = 8, ("resnet50", "bert", "vit", "mobilenetv2")
SEQUENCE, SEQUENCE_MODELS = 512, ("bert", "llama", "gpt2")


def run(settings: Settings) -> Iterator[Figure]:
    wanted = [(model, BATCH, 128, f"batch {BATCH}") for model in BATCH_MODELS]
    wanted += [(model, 1, SEQUENCE, f"sequence {SEQUENCE}") for model in SEQUENCE_MODELS]
    for model, batch, sequence, size in wanted:
        if model not in settings.models:
            continue
        for case in cases(settings, model, batch, sequence):
            yield ratio_figure("shapes", f"{model}, {size}, {threads_text(case.threads)}", case, RATIO)
