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
_CONSTANT = "its Python fixes a dynamic size: "
NOTES: dict[str, str] = {
    "timm/selecsls42b": _CONSTANT + "the height of the image",
    "timm/convit_tiny": "forward makes a table and keeps it as a buffer of another shape: run the model once before",
    "kornia/equalize_clahe": _CONSTANT + "tiles whose number torch asks for",
    "speechbrain/CRDNN": _CONSTANT + "the batch, which a layer compares with that of the call before",
}

__all__ = ["LIBRARIES", "NOTES", "ROWS", "LibraryRow"]
