"""Between numpy arrays and what a model takes and returns, for dtypes that numpy lacks too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_array", "as_tensor", "narrow_bfloat", "widen_bfloat"]

_BFLOAT = 4  # kDLBfloat


def as_tensor(array: NDArray[Any], dtype: str) -> Any:
    """What to pass to a model for an array of the manifest's dtype; bf16 comes as its bits in uint16, or as floats."""
    if dtype != "bf16":
        return array
    from .dlpack import DlpackArray

    if array.dtype.kind == "f":
        array = narrow_bfloat(array)
    return DlpackArray(array, _BFLOAT)


def as_array(output: Any, dtype: str) -> NDArray[Any]:
    """A model's output as numpy; bf16 widened to float32, which is exact."""
    if isinstance(output, np.ndarray) and dtype != "bf16":
        return output
    if isinstance(output, np.ndarray) and output.dtype.kind == "f":
        return output.astype(np.float32)
    if isinstance(output, np.ndarray):
        return widen_bfloat(output.view(np.uint16))
    from .dlpack import array_of

    array = array_of(output)
    return widen_bfloat(array) if dtype == "bf16" else array


def narrow_bfloat(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The bits of the bfloat16 nearest to the float32 nearest to each value; ties to even."""
    floats = np.asarray(values, np.float32)
    bits = floats.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(floats), 0x7FC0, rounded).astype(np.uint16)


def widen_bfloat(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
