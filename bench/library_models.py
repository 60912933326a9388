"""The models of `bench/sweep.py --table libraries`: a row each, with random weights."""

from __future__ import annotations

from architectures import library_others, library_vision
from architectures.library_base import LibraryRow

ROWS = [*library_vision.ROWS, *library_others.ROWS]
#: whose versions the page names
LIBRARIES = (
    "torchvision", "torchaudio", "timm", "diffusers", "torch_geometric", "segmentation_models_pytorch", "kornia",
    "e3nn", "neuraloperator", "speechbrain",
)  # fmt: skip
#: of models that are not right: why, in plain words
NOTES: dict[str, str] = {}

__all__ = ["LIBRARIES", "NOTES", "ROWS", "LibraryRow"]
