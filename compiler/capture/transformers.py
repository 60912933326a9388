"""torch's own transformers, which look at the values of a mask, and call kernels that have no definition.

nn.Transformer(...)(x, y, tgt_mask=m)    asks whether m is the causal mask, and takes a faster kernel then: the same
                                         sums, as m is added otherwise
nn.TransformerEncoderLayer in eval mode  is one operator without derivatives; here it is spelled out
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor
from torch.nn.modules import transformer

__all__ = ["spelled_out_transformers"]


@contextmanager
def spelled_out_transformers() -> Iterator[None]:
    """While it lasts, transformers add the masks that they are given, operator by operator."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with mock.patch.object(transformer, "_detect_is_causal_mask", _said_to_be_causal):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _said_to_be_causal(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    return is_causal is True
