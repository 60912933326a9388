"""torch.nn.attention.flex_attention, written with operators: scores as score_mod has them, without what mask_mod hides.

out = softmax(where(mask_mod(b, h, i, j), score_mod(scale * q k^T, b, h, i, j), -inf)) v

Where score_mod changes nothing it is scaled_dot_product_attention with a mask, one kernel; else the scores are written.
Rows that see nothing are zeros, as torch's are. A block mask hides what its mask_mod does; its blocks are not skipped.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.attention.flex_attention as flex
from torch import Tensor
from torch._higher_order_ops.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode

from ...runtime.errors import CompileError

__all__ = ["FLEX", "by_operators", "flex_as_operators"]

#: what calls of torch's function reach
FLEX = flex_attention


@contextlib.contextmanager
def by_operators() -> Iterator[None]:
    """While it lasts flex_attention calls FLEX itself, not through torch.compile."""
    with mock.patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        yield


def flex_as_operators(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: Any = None,
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """query [b, h, m, d], key and value [b or 1, groups, n, ...] -> out, and of each row the logarithm of its sum and
    its largest score, both in base 2."""
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    key, value = (x.expand(batch, *x.shape[1:]) for x in (key, value))
    places = [
        torch.arange(n).reshape([-1 if d == axis else 1 for d in range(4)])
        for axis, n in enumerate((batch, heads, queries, keys))
    ]
    mask_mod, mask = block_mask[-1], None
    if mask_mod is not flex.noop_mask:
        with _OfScalars("mask_mod"):
            mask = mask_mod(*places, *mask_mod_other_buffers)
        mask = mask.expand(batch, heads, queries, keys)
    repeats = heads // key.shape[1]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(wide) @ key.to(wide).repeat_interleave(repeats, 1).transpose(2, 3) * scale
    if score_mod is not flex._identity:
        with _OfScalars("score_mod"):
            changed = score_mod(scores, *places, *score_mod_other_buffers)
        scores = changed.to(wide).expand(batch, heads, queries, keys)
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    largest = scores.amax(-1)
    total = torch.logsumexp(scores, -1)
    if score_mod is flex._identity:
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, scale=scale, enable_gqa=repeats != 1
        )
    else:
        seen = (scores > -math.inf).any(-1, keepdim=True)
        weights = torch.where(seen, torch.softmax(scores, -1), 0.0).to(query.dtype)
        out = weights @ value.to(query.dtype).repeat_interleave(repeats, 1)
    return out, total / math.log(2), largest / math.log(2)


class _OfScalars(TorchFunctionMode):
    """While it lasts a function of one score runs for all at once, by broadcasting: for that each of its steps has to
    be one of single numbers. The step that is not is refused."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor):
            return result
        if not _is_pointwise(name) or result.dim() not in (0, _PLACES):
            raise CompileError(
                f"{self._what} of flex_attention calls {name.strip('_')}, which is no function of single numbers here",
                hint="Look numbers up by as many indices as the table has dimensions, and compute with single numbers.",
            )
        return result


#: dimensions of a score's place: text, head, query, key
_PLACES = 4
#: beside what torch marks as pointwise: looking up, other types, and Python's forms of operators
_ALSO = {
    "getitem", "get", "to", "float", "int", "long", "bool", "double", "half", "bfloat16", "type", "and", "or", "xor",
    "invert", "rsub", "radd", "rmul", "rtruediv", "truediv", "floordiv", "mod", "clone", "full_like", "zeros_like",
    "ones_like", "tensor", "detach", "neg", "abs", "rfloordiv", "rpow", "lshift", "rshift", "remainder", "clamp",
}  # fmt: skip


@functools.cache
def _is_pointwise(name: str) -> bool:
    plain = name.strip("_")
    if plain in _ALSO:
        return True
    packet = getattr(torch.ops.aten, plain, None)
    return packet is not None and any(
        torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()
    )
