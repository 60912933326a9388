"""Weights in the forms of compressed-tensors, which llm-compressor writes.

    pack-quantized    weight_packed int32 [N, K * bits / 32], each number plus half its range; weight_scale [N, groups];
                      weight_zero_point int32 [N * bits / 32, groups] packed along N; weight_g_idx [K]
    int-quantized     weight int8 [N, K], weight_scale [N, groups] or one, weight_zero_point likewise
    float-quantized   weight float8_e4m3fn [N, K], weight_scale [N, 1], one, or one for each block

w = (q - zero) * scale. A layer's scheme is that of the first group of the configuration that names it or its class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .weights import Activations, PackedWeight, by_groups, centred, nibbles, refused

__all__ = ["is_ignored", "read_compressed", "scheme_of"]

#: formats of weights that are taken -> the tensor that holds the numbers
_TENSORS = {
    "pack-quantized": "weight_packed", "int-quantized": "weight", "float-quantized": "weight",
    "naive-quantized": "weight",
}  # fmt: skip


def is_ignored(layer: str, config: Mapping[str, Any]) -> bool:
    """Whether the configuration leaves a layer as it is."""
    return any(_names(pattern, layer, "Linear") for pattern in config.get("ignore") or ())


def scheme_of(layer: str, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The group of the configuration that says how a linear layer is quantised; None: it stays as it is."""
    if is_ignored(layer, config):
        return None
    groups: Sequence[Mapping[str, Any]] = list((config.get("config_groups") or {}).values())
    by_name = [g for g in groups if any(_names(p, layer, "") for p in g.get("targets") or ())]
    by_class = [g for g in groups if any(_names(p, "", "Linear") for p in g.get("targets") or ())]
    return next(iter([*by_name, *by_class]), None)


def _names(pattern: str, layer: str, kind: str) -> bool:
    if pattern.startswith("re:"):
        return bool(layer and re.match(pattern[3:], layer))
    return pattern in (layer, kind) and bool(pattern)


def read_compressed(
    layer: str, shape: tuple[int, int], get: Callable[[str], Tensor], config: Mapping[str, Any]
) -> PackedWeight:
    """A layer's weight. config: quantization_config. Raises CompileError for tensors or schemes that do not fit."""
    scheme = scheme_of(layer, config)
    if scheme is None:
        raise refused(layer, "quantization_config names no group for it, yet it has scales")
    form, how = str(scheme.get("format") or config.get("format")), dict(scheme.get("weights") or {})
    _check_form(layer, form, how, config)
    bits, _rows, columns = int(how.get("num_bits", 8)), *shape
    scales = _grid(layer, get("weight_scale"), shape)
    values = _unpacked(get("weight_packed"), bits)[:, :columns] if form == "pack-quantized" else get("weight")
    if tuple(values.shape) != shape:
        raise refused(layer, f"its numbers are {list(values.shape)}, not {list(shape)}")
    zeros = _zeros(layer, get, form, bits, shape)
    groups = scales.shape[1]
    found = _optional(get, "weight_g_idx")
    if found is None or int(found.min()) < 0:
        found = torch.arange(columns) // max(1, columns // groups)
    order, group = by_groups(layer, found, groups)
    values = values if order is None else values[:, order]
    activations, known = _activations(layer, get, scheme)
    return PackedWeight(values.contiguous(), scales, zeros, bits, group, order, activations, known)


def _check_form(layer: str, form: str, how: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    sparse = (config.get("sparsity_config") or {}).get("format", "dense")
    if sparse not in ("dense", None) or form.startswith(("sparse", "marlin-24")):
        raise refused(layer, f"sparse weights ({form if sparse == 'dense' else sparse}) are not taken", _DENSE)
    if form not in _TENSORS:
        raise refused(layer, f"the format {form} is not taken", f"Formats: {', '.join(sorted(_TENSORS))}.")
    kind, bits = how.get("type", "int"), how.get("num_bits", 8)
    taken = (8,) if kind == "float" or form != "pack-quantized" else (4, 8)
    if bits not in taken:
        raise refused(
            layer, f"{kind} weights of {bits} bits as {form} are not taken", "Write it with W4A16, W8A8 or FP8."
        )


_DENSE = "Quantise the model again without a sparse format: W4A16, W8A8 or FP8."


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    return centred(nibbles(packed, bits), bits)


def _zeros(layer: str, get: Callable[[str], Tensor], form: str, bits: int, shape: tuple[int, int]) -> Tensor | None:
    zeros = _optional(get, "weight_zero_point")
    if zeros is None:
        return None
    if form == "pack-quantized" and zeros.dtype == torch.int32:
        zeros = _unpacked(zeros.t(), bits).t()[: shape[0]]
    return _grid(layer, zeros, shape) if bool(zeros.float().any()) else None


def _grid(layer: str, part: Tensor, shape: tuple[int, int]) -> Tensor:
    """Scales or zeros as [N, groups]: there may be one, one for each row, for each group, or for each block."""
    rows, columns = shape
    part = part.reshape(1, 1) if part.numel() == 1 else part.reshape(-1, 1) if part.dim() == 1 else part
    high, wide = part.shape
    if high in (1, rows) and columns % wide == 0:
        return part.expand(rows, wide).contiguous()
    block = _block(rows, high), _block(columns, wide)
    if not block[0] or not block[1] or columns % block[1]:
        raise refused(layer, f"a grid of {high} x {wide} scales does not divide {rows} x {columns} weights")
    return part.repeat_interleave(block[0], 0)[:rows].contiguous()


def _block(size: int, count: int) -> int:
    """The length of blocks, of a power of 2, of which `count` cover `size`; 0: there is none."""
    return next((b for b in (32, 64, 128, 256, 512) if -(-size // b) == count), 0)


def _activations(
    layer: str, get: Callable[[str], Tensor], scheme: Mapping[str, Any]
) -> tuple[Activations, tuple[float, int] | None]:
    """How a layer's activations become int8. Those of float8 stay floats, which are nearer to the model."""
    how = scheme.get("input_activations")
    if not how or how.get("type", "int") != "int":
        return "floats", None
    dynamic = bool(how.get("dynamic"))
    plain = how.get("strategy") in ("token", None) and how.get("symmetric", True) if dynamic else True
    if how.get("num_bits") != 8 or not plain:
        odd = (
            f"{how.get('num_bits')} bits by {how.get('strategy')}{'' if how.get('symmetric', True) else ', asymmetric'}"
        )
        raise refused(layer, f"activations of {odd} are not taken", "Write it with W8A8, symmetric by token.")
    if dynamic:
        return "rows", None
    scale, zero = get("input_scale"), _optional(get, "input_zero_point")
    if scale.numel() != 1:
        raise refused(layer, f"its input_scale holds {scale.numel()} numbers, and one is taken")
    return "tensor", (float(scale), 0 if zero is None else int(zero))


def _optional(get: Callable[[str], Tensor], name: str) -> Tensor | None:
    try:
        return get(name)
    except KeyError:
        return None
