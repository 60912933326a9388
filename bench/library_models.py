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
_ONE_BY_ONE = "resizes what it found of each box in a Python loop over the boxes, to the size of the box: "
NOTES: dict[str, str] = {
    "torchvision/maskrcnn_resnet50_fpn": _ONE_BY_ONE + "roi_heads.py, paste_masks_in_image",
    "torchvision/keypointrcnn_resnet50_fpn": _ONE_BY_ONE + "roi_heads.py, heatmaps_to_keypoints",
    "torchvision/raft_small": _CONSTANT + "it splits features by the number of images",
    "timm/selecsls42b": _CONSTANT + "the height of the image",
    "timm/convit_tiny": "forward makes a table and keeps it as a buffer of another shape: run the model once before",
    "kornia/equalize_clahe": _CONSTANT + "tiles are counted by numbers of the example",
    **dict.fromkeys(
        ("torchaudio/lowpass_biquad", "torchaudio/equalizer_biquad", "torchaudio/deemph_biquad"),
        _CONSTANT + "the numbers of rows and samples that lfilter works on",
    ),
    "torchaudio/Resample": _CONSTANT + "the length of the result is computed with floats",
    "speechbrain/ECAPA_TDNN": _CONSTANT + "the batch",
    "speechbrain/CRDNN": _CONSTANT + "the batch",
    "diffusers/unet3d_condition": _CONSTANT + "the batch is reshaped by the number of frames",
}

__all__ = ["LIBRARIES", "NOTES", "ROWS", "LibraryRow"]
