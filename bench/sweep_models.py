"""The architectures of bench/sweep.py: a row each, in a small configuration with random weights."""

from __future__ import annotations

from architectures import mixed, text, vision
from architectures.base import Row

ROWS = [*text.ROWS, *vision.ROWS, *mixed.ROWS]
BY_NAME = {row.name: row for row in ROWS}

#: of architectures that are not right: why, in plain words
_VALUE = "Python branches on a value of a tensor: "
_BATCH = "its Python fixes the size of the batch: "
NOTES = {
    "longformer": _VALUE + "is there global attention?",
    "led": _VALUE + "is there global attention?",
    "encodec": _VALUE + "paddings are kept as tensors",
    "fastspeech2-conformer": _VALUE + "is the sum of the durations 0?",
    "vilt": _VALUE + "images are resized to what their masks say",
    "dbrx": "loops in Python over the experts that some token chose",
    "switch": "converts the weights of its router in forward",
    "nllb-moe": "converts the weights of its router in forward",
    "nystromformer": "is given a mask while it is traced that its landmarks do not fit",
    "autoformer": "is given a mask while it is traced that its correlations do not fit",
    "reformer": _BATCH + "a loop over its rows",
    "llava": _BATCH + "a loop over its images",
    "superpoint": _BATCH + "a loop over its images",
    "rt-detr": _BATCH + "len() of a tensor",
    "clipseg": _BATCH + "len() of a tensor",
}

__all__ = ["BY_NAME", "NOTES", "ROWS", "Row"]
