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
_BOXES = "torchvision's batched_nms and its detectors branch in Python on how many boxes are left"
_CONSTANT = "its Python fixes a dynamic size: "
NOTES: dict[str, str] = {
    **{
        f"torchvision/{name}": _BOXES
        for name in (
            "fasterrcnn_mobilenet_v3_large_320_fpn fasterrcnn_resnet50_fpn retinanet_resnet50_fpn fcos_resnet50_fpn "
            "ssd300_vgg16 ssdlite320_mobilenet_v3_large maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn"
        ).split()
    },
    "torchvision/raft_small": _CONSTANT + "it splits features by the number of images",
    "torchvision/swin_t": "the export of padded windows of dynamic height and width takes minutes",
    "torchvision/swin_v2_t": "the export of padded windows of dynamic height and width takes minutes",
    "timm/selecsls42b": _CONSTANT + "the height of the image",
    "timm/convit_tiny": "forward makes a table and keeps it as a buffer of another shape: run the model once before",
    "kornia/equalize_clahe": _CONSTANT + "tiles are counted by numbers of the example",
    "diffusers/unet3d_condition": _CONSTANT + "the batch is reshaped by the number of frames",
}

__all__ = ["LIBRARIES", "NOTES", "ROWS", "LibraryRow"]
