"""The part of a vision-language model that reads an image: pixels of one size to vectors, one for each token."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...runtime.errors import CompileError

__all__ = ["ImageEncoder", "image_settings", "image_size"]

#: of images, where the model takes any size
_SIDE = 448
#: what preprocessor_config.json says where it says nothing: CLIP's
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class _Bounds:
    """Where the parts of a sequence begin and end, known while the model is captured: as the tensor that a vision
    model splits its attention by."""

    def __init__(self, values: list[int]) -> None:
        self._values = values

    def __getitem__(self, taken: slice) -> _Bounds:
        return _Bounds(self._values[taken])

    def __sub__(self, other: _Bounds) -> _Bounds:
        return _Bounds([a - b for a, b in zip(self._values, other._values, strict=True)])

    def tolist(self) -> list[int]:
        return self._values


class ImageEncoder(nn.Module):
    """f32[3, height, width], normalised -> f32[vectors, size].

    Attributes:
        grid: rows and columns of the image's vectors, of models whose positions have three coordinates; else None.
    """

    def __init__(self, network: Any, height: int, width: int) -> None:
        super().__init__()
        self.network, self.height, self.width = network, height, width
        self.packed = "image_grid_thw" in inspect.signature(network.get_image_features).parameters
        self.grid: tuple[int, int] | None = None
        if self.packed:
            self._prepare(network.config.vision_config)

    def _prepare(self, config: Any) -> None:
        """What a vision model of patches in any grid computes from the grid."""
        from transformers import vision_utils

        self.patch, self.merge = config.patch_size, config.spatial_merge_size
        self.times = config.temporal_patch_size
        rows, columns = self.height // self.patch, self.width // self.patch
        self.grid = rows // self.merge, columns // self.merge
        grid = torch.tensor([[1, rows, columns]])
        self.register_buffer("places", vision_utils.get_vision_position_ids(grid, self.merge))
        self.whole = [0, rows * columns]
        self.windows = None
        if getattr(config, "window_size", None):
            order, bounds = vision_utils.get_vision_window_index(
                grid, spatial_merge_size=self.merge, window_size=config.window_size, patch_size=self.patch
            )
            self.register_buffer("order", order)
            self.windows = bounds.tolist()

    def forward(self, pixels: Tensor) -> Tensor:
        pixels = pixels.to(self.network.dtype)
        if not self.packed:
            found = self.network.get_image_features(pixel_values=pixels[None]).pooler_output
            return (torch.cat(list(found)) if isinstance(found, list | tuple) else found[0]).float()
        rows, columns = self.whole[1] // (self.width // self.patch), self.width // self.patch
        known: dict[str, Any] = {"position_ids": self.places, "cu_seqlens": _Bounds(self.whole)}
        if self.windows is not None:
            known |= {"window_index": self.order, "cu_window_seqlens": _Bounds(self.windows)}
        visual = self.network.model.visual
        found = visual(self._patches(pixels, rows, columns), grid_thw=None, **known).pooler_output
        assert isinstance(found, Tensor)
        return found.float()

    def _patches(self, pixels: Tensor, rows: int, columns: int) -> Tensor:
        """[patches, channels * times * patch * patch], those that become one vector together."""
        size, merge = self.patch, self.merge
        cut = pixels.reshape(3, rows // merge, merge, size, columns // merge, merge, size)
        cut = cut.permute(1, 4, 2, 5, 0, 3, 6).unsqueeze(5)
        cut = cut.expand(-1, -1, -1, -1, -1, self.times, -1, -1)
        return cut.reshape(rows * columns, 3 * self.times * size * size)


def image_size(network: Any, asked: Any) -> tuple[int, int]:
    """Height and width of the images that a package reads.

    asked: a number for both, or the two; None: the model's own.

    Raises:
        CompileError: the model does not take such images, or no images at all.
    """
    config = getattr(network.config, "vision_config", None)
    if config is None or not hasattr(network, "get_image_features"):
        raise CompileError(
            f"{type(network).__name__} does not read images", hint="Name another task: --task text-generation."
        )
    own = getattr(config, "image_size", None)
    given = (own or _SIDE) if asked is None else asked
    pair = (given, given) if isinstance(given, int) else tuple(given)
    if len(pair) != 2 or not all(isinstance(n, int) and n > 0 for n in pair):
        raise CompileError(f"image_size has to be a height and a width, not {asked!r}")
    if own is not None and asked is not None and pair != (own, own):
        raise CompileError(f"image_size is {asked!r}, but the model takes images of {own} x {own}")
    unit = config.patch_size * getattr(config, "spatial_merge_size", 1)
    if own is None and any(n % unit for n in pair):
        raise CompileError(f"image_size has to be multiples of {unit}, not {pair[0]} x {pair[1]}")
    return pair[0], pair[1]


def image_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """How pixels become the model's numbers, by preprocessor_config.json."""
    return {
        "mean": list(given.get("image_mean", _MEAN)), "std": list(given.get("image_std", _STD)),
        "scale": float(given.get("rescale_factor", 1 / 255)), "crop": bool(given.get("do_center_crop", False)),
        "resample": int(given.get("resample", 3)),
    }  # fmt: skip
