"""Models of images: torchvision, timm, segmentation_models_pytorch, kornia."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import torch

from .library_base import Function, Input, LibraryRow, image, uniform

#: heights and widths of three runs, multiples of 32
LARGE = {"h": (64, 96, 128), "w": (96, 64, 64)}
BY_32 = {"h": 32, "w": 32}


def _torchvision(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        import torchvision

        weights = {} if name.startswith("raft") or "3d" in name or name == "s3d" else {"weights_backbone": None}
        detects = any(part in name for part in ("rcnn", "retina", "ssd", "fcos", "deeplab", "fcn_", "lraspp"))
        return torchvision.models.get_model(name, weights=None, **(weights if detects else {}), **options)

    return build


class Detector(torch.nn.Module):
    """A detector of one image [3, height, width]: boxes, scores and labels."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (found,) = self.network([x])
        return tuple(found.values())


#: layers that score boxes: their names end so, before a number
_SCORES = re.compile(r"(cls_logits|cls_score|classification_head\.module_list)(\.\d+)*$")


def _detector(name: str) -> Callable[[], torch.nn.Module]:
    """A detector whose scores are apart: random weights give all boxes about the same, and none more than is asked."""

    def build() -> torch.nn.Module:
        count = {"box_detections_per_img" if "rcnn" in name else "detections_per_img": COUNT}
        model = Detector(_torchvision(name, **count, **({} if name.startswith("ssd") else SMALL))()).eval()
        norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        for norm in norms:
            norm.train()
            norm.momentum = 1.0
        x = torch.rand(3, 96, 128)
        with torch.no_grad():
            with contextlib.suppress(ValueError):  # of one pixel there is no variance
                model(x)
            model.eval()
            layers = [m for n, m in model.named_modules() if _SCORES.search(n) and hasattr(m, "weight")]
            for layer in layers:
                layer.register_forward_hook(_spread)
            model(x)
        return model

    return build


def _spread(layer: Any, _: Any, logits: torch.Tensor) -> torch.Tensor:
    """Makes the weights such that the logits of the first call have a standard deviation of 2."""
    factor = 2.0 / float(logits.std())
    layer.weight *= factor
    layer._forward_hooks.clear()
    return logits * factor


CLASSIFIERS = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s mnasnet0_5 mobilenet_v2 mobilenet_v3_small "
    "regnet_x_400mf regnet_y_400mf resnet18 resnext50_32x4d shufflenet_v2_x0_5 squeezenet1_1 vgg11_bn"
).split()
#: of one size of image; the export of swin's padded windows of dynamic height and width takes minutes
FIXED = {"swin_t": 64, "swin_v2_t": 64, "vit_b_32": 224, "maxvit_t": 224, "googlenet": 96, "inception_v3": 128}
VIDEOS = {"r3d_18": 48, "mc3_18": 48, "r2plus1d_18": 48, "s3d": 224, "mvit_v1_b": 224, "mvit_v2_s": 224, "swin3d_t": 64}
DETECTORS = (
    "fasterrcnn_mobilenet_v3_large_320_fpn fasterrcnn_resnet50_fpn retinanet_resnet50_fpn fcos_resnet50_fpn "
    "ssd300_vgg16 ssdlite320_mobilenet_v3_large maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn"
).split()
#: what detectors of images of any size resize them to
SMALL = {"min_size": 128, "max_size": 160}
#: few detections, the order of whose scores does not depend on roundings
COUNT = 8


def _operators() -> dict[str, Callable[..., Any]]:
    import torchvision

    ops = torchvision.ops
    return {
        "nms": lambda boxes, scores: ops.nms(boxes, scores, 0.4),
        "roi_align": lambda x, rois: ops.roi_align(x, rois, (7, 7), 0.25, 2, True),
        "roi_pool": lambda x, rois: ops.roi_pool(x, rois, (7, 7), 0.25),
        "ps_roi_align": lambda x, rois: ops.ps_roi_align(x, rois, 2, 0.25),
    }


def _operator(name: str) -> Callable[[], torch.nn.Module]:
    return lambda: Function(_operators()[name])


def _boxes(shape: tuple[int, ...]) -> torch.Tensor:
    corner = torch.rand(*shape[:-1], 2) * 80
    return torch.cat([corner, corner + 4 + torch.rand(*shape[:-1], 2) * 40], -1)


def _regions(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.cat([torch.zeros(*shape[:-1], 1), _boxes((*shape[:-1], 4))], -1)


_COUNTED = {"n": (20, 7, 33)}
TORCHVISION = [
    *(
        LibraryRow(f"torchvision/{n}", "classifier", _torchvision(n), (image("h", "w"),), LARGE, BY_32)
        for n in CLASSIFIERS
    ),
    *(LibraryRow(f"torchvision/{n}", "classifier", _torchvision(n), (image(s, s),)) for n, s in FIXED.items()),
    *(
        LibraryRow(f"torchvision/{n}", "segmentation", _torchvision(n), (image("h", "w"),), LARGE, BY_32)
        for n in ("deeplabv3_mobilenet_v3_large", "deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large")
    ),
    *(LibraryRow(f"torchvision/{n}", "detection", _detector(n), (Input((3, 96, 128), uniform()),)) for n in DETECTORS),
    *(
        LibraryRow(f"torchvision/{n}", "video", _torchvision(n), (Input(("b", 3, 16, s, s)),))
        for n, s in VIDEOS.items()
    ),
    LibraryRow(
        "torchvision/raft_small",
        "flow",
        _torchvision("raft_small"),
        (image(128, 128), image(128, 128)),
        call={"num_flow_updates": 2},
    ),
    LibraryRow(
        "torchvision/nms", "operator", _operator("nms"), (Input(("n", 4), _boxes), Input(("n",), torch.rand)), _COUNTED
    ),
    *(
        LibraryRow(
            f"torchvision/{n}", "operator", _operator(n), (image(32, 32, 16), Input(("n", 5), _regions)), _COUNTED
        )
        for n in ("roi_align", "roi_pool", "ps_roi_align")
    ),
]


def _timm(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, **options)

    return build


#: those that take images of any size (multiples of 32), and those of one size
TIMM = (
    "resnet26d resnetv2_50x1_bit tf_efficientnet_lite0 mobilenetv4_conv_small mobileone_s0 repvgg_a0 regnetz_b16 "
    "dm_nfnet_f0 nf_resnet26 ecaresnet26t seresnext26t_32x4d skresnet18 res2net50_26w_4s hrnet_w18_small dla34 "
    "densenetblur121d convnextv2_atto convnext_atto edgenext_xx_small fastvit_t8 ghostnet_100 hardcorenas_a "
    "inception_next_tiny lcnet_050 legacy_xception poolformer_s12 rexnet_100 selecsls42b spnasnet_100 tinynet_e "
    "vovnet39a cspresnet50 dpn48b starnet_s1 efficientvit_b0 repghostnet_050"
).split()
TIMM_FIXED = {
    "beit_base_patch16_224": 224, "cait_xxs24_224": 224, "coat_tiny": 224, "convit_tiny": 224, "crossvit_tiny_240": 240,
    "deit_tiny_patch16_224": 224, "eva02_tiny_patch14_224": 224, "gmlp_s16_224": 224, "levit_128s": 224,
    "mixer_s32_224": 224, "mobilevit_xxs": 256, "maxvit_rmlp_pico_rw_256": 256, "nest_tiny": 224, "pit_ti_224": 224,
    "pvt_v2_b0": 224, "sequencer2d_s": 224, "swinv2_tiny_window8_256": 256, "tiny_vit_5m_224": 224,
    "twins_pcpvt_small": 224, "vit_tiny_patch16_224": 224, "volo_d1_224": 224, "xcit_nano_12_p16_224": 224,
    "tnt_s_patch16_224": 224, "visformer_tiny": 224,
}  # fmt: skip
TIMM_ROWS = [
    *(LibraryRow(f"timm/{n}", "classifier", _timm(n), (image("h", "w"),), LARGE, BY_32) for n in TIMM),
    *(LibraryRow(f"timm/{n}", "classifier", _timm(n), (image(s, s),)) for n, s in TIMM_FIXED.items()),
]


def _segmentation(name: str) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        import segmentation_models_pytorch

        encoder = "mit_b0" if name in ("Segformer",) else "resnet18"
        return getattr(segmentation_models_pytorch, name)(encoder, encoder_weights=None, classes=3)

    return build


SEGMENTATION = [
    LibraryRow(f"segmentation_models_pytorch/{n}", "segmentation", _segmentation(n), (image("h", "w"),), LARGE, BY_32)
    for n in "Unet UnetPlusPlus FPN PSPNet DeepLabV3 DeepLabV3Plus Linknet MAnet UPerNet Segformer".split()
]


def _kornia() -> dict[str, Callable[..., Any]]:
    import kornia

    shift = torch.tensor([[[1.0, 0.1, 3.0], [-0.1, 1.0, -2.0]]])
    view = torch.tensor([[[1.0, 0.1, 3.0], [-0.1, 1.0, -2.0], [1e-3, 0.0, 1.0]]])
    return {
        "gaussian_blur": lambda x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
        "sobel": kornia.filters.sobel,
        "median_blur": lambda x: kornia.filters.median_blur(x, (3, 3)),
        "canny": lambda x: kornia.filters.canny(x)[0],
        "rgb_to_lab": kornia.color.rgb_to_lab,
        "rgb_to_hsv": kornia.color.rgb_to_hsv,
        "warp_affine": lambda x: kornia.geometry.warp_affine(x, shift.expand(x.shape[0], 2, 3), (40, 50)),
        "warp_perspective": lambda x: kornia.geometry.warp_perspective(x, view.expand(x.shape[0], 3, 3), (40, 50)),
        "equalize_clahe": lambda x: kornia.enhance.equalize_clahe(x, grid_size=(4, 4)),
        "harris": lambda x: kornia.feature.harris_response(x[:, :1]),
        "dilation": lambda x: kornia.morphology.dilation(x, torch.ones(3, 3)),
        "ssim": lambda x: kornia.metrics.ssim(x, x.flip(-1), 5),
    }


def _kornia_function(name: str) -> Callable[[], torch.nn.Module]:
    return lambda: Function(_kornia()[name])


KORNIA = [
    LibraryRow(f"kornia/{n}", "image processing", _kornia_function(n), (image("h", "w", fill=uniform()),), LARGE, BY_32)
    for n in (
        "gaussian_blur sobel median_blur canny rgb_to_lab rgb_to_hsv warp_affine warp_perspective equalize_clahe "
        "harris dilation ssim"
    ).split()
]
ROWS = [*TORCHVISION, *TIMM_ROWS, *SEGMENTATION, *KORNIA]
