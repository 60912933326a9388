"""Operators of libraries that read memory by the values of their operands unchecked: what the reference asks first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["check_operands"]


def _images_of_regions(args: Sequence[Any]) -> None:
    """torchvision's pools over regions: column 0 of a region is the number of its image."""
    images, regions = args[0], args[1]
    numbers = regions[:, 0]
    if not bool(((numbers >= 0) & (numbers < images.shape[0])).all()):
        raise IndexError("a region of interest names an image that is not in the batch")


_CHECKS: Mapping[str, Callable[[Sequence[Any]], None]] = {
    f"torchvision.{name}.default": _images_of_regions
    for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
}


def check_operands(target: Any, args: Sequence[Any]) -> None:
    """Raises IndexError where the operator would read outside of its operands; others pass."""
    check = _CHECKS.get(str(target)) if isinstance(target, torch._ops.OpOverload) else None
    if check is not None:
        check(args)
