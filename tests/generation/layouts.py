"""Writers of published layouts of quantised weights, after their descriptions: numbers, scales and zeros to tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Layer = dict[str, Tensor]
#: makes the tensors of a layer from its floats [N, K], and what they stand for, float64
Writer = Callable[[Tensor], tuple[Layer, Tensor]]


@dataclass(frozen=True)
class Numbers:
    """q unsigned [N, K] of `bits` bits, scales and zeros [N, groups]: w = (q - zeros) * scales."""

    q: Tensor
    scales: Tensor
    zeros: Tensor
    group: Tensor

    def floats(self) -> Tensor:
        scales, zeros = (part.double()[:, self.group] for part in (self.scales, self.zeros))
        return (self.q.double() - zeros) * scales


def numbers(w: Tensor, bits: int, size: int, symmetric: bool, scale_dtype: torch.dtype, shuffled: bool) -> Numbers:
    rows, columns = w.shape
    group = torch.arange(columns) // size
    if shuffled:
        group = group[torch.randperm(columns)]
    most = (1 << bits) - 1
    scales, zeros = torch.empty(rows, columns // size), torch.empty(rows, columns // size)
    for g in range(columns // size):
        part = w[:, group == g]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        scales[:, g] = 2 * part.abs().amax(1) / most if symmetric else (high - low) / most
        zeros[:, g] = (most + 1) // 2 if symmetric else torch.round(-low / scales[:, g])
    scales = scales.to(scale_dtype)
    q = torch.clamp(torch.round(w / scales.float()[:, group]) + zeros[:, group], 0, most)
    return Numbers(q.long(), scales, zeros.long(), group)


def pack(values: Tensor, bits: int) -> Tensor:
    """Unsigned numbers [..., n] as int32 [..., n * bits / 32], the lowest bits first."""
    parts = values.unflatten(-1, (-1, 32 // bits)) << (torch.arange(32 // bits) * bits)
    total = parts.sum(-1)
    return torch.where(total >= 1 << 31, total - (1 << 32), total).to(torch.int32)


def gptq(
    bits: int = 4, size: int = 32, symmetric: bool = True, act_order: bool = False, second: bool = False
) -> Writer:
    def write(w: Tensor) -> tuple[Layer, Tensor]:
        n = numbers(w, bits, size, symmetric, torch.float16, act_order)
        zeros = n.zeros.t() if second else (n.zeros.t() - 1) % (1 << bits)
        if not second:
            zeros = n.zeros.t().clamp(min=1) - 1
            n = Numbers(n.q, n.scales, n.zeros.clamp(min=1), n.group)
        layer = {
            "qweight": pack(n.q, bits).t(), "qzeros": pack(zeros, bits), "scales": n.scales.t(),
            "g_idx": n.group.to(torch.int32),
        }  # fmt: skip
        return layer, n.floats()

    return write


def awq(size: int = 32) -> Writer:
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])

    def shuffled(values: Tensor) -> Tensor:
        return pack(values.unflatten(-1, (-1, 8))[..., order].flatten(-2), 4)

    def write(w: Tensor) -> tuple[Layer, Tensor]:
        n = numbers(w, 4, size, False, torch.float16, False)
        return {"qweight": shuffled(n.q.t()), "qzeros": shuffled(n.zeros.t()), "scales": n.scales.t()}, n.floats()

    return write


def packed(bits: int = 4, size: int = 32, symmetric: bool = True, act_order: bool = False) -> Writer:
    """compressed-tensors' pack-quantized."""

    def write(w: Tensor) -> tuple[Layer, Tensor]:
        n = numbers(w, bits, size, symmetric, torch.bfloat16, act_order)
        layer = {"weight_packed": pack(n.q, bits), "weight_scale": n.scales, "weight_shape": torch.tensor(w.shape)}
        if not symmetric:
            layer["weight_zero_point"] = pack(n.zeros.t(), bits).t()
        if act_order:
            layer["weight_g_idx"] = n.group.to(torch.int32)
        return layer, n.floats()

    return write


def integers(w: Tensor) -> tuple[Layer, Tensor]:
    """compressed-tensors' int-quantized, by rows."""
    n = numbers(w, 8, w.shape[1], True, torch.bfloat16, False)
    return {"weight": (n.q - 128).to(torch.int8), "weight_scale": n.scales}, n.floats()


def float8(w: Tensor) -> tuple[Layer, Tensor]:
    """compressed-tensors' float-quantized, by rows."""
    scales = (w.abs().amax(1, True) / 448).to(torch.bfloat16)
    q = (w / scales.float()).to(torch.float8_e4m3fn)
    return {"weight": q, "weight_scale": scales}, q.double() * scales.double()


def float8_blocks(w: Tensor) -> tuple[Layer, Tensor]:
    """The method "fp8": blocks of 32 x 32."""
    rows, _columns = w.shape
    blocks = torch.nn.functional.pad(w, (0, 0, 0, -rows % 32)).unflatten(0, (-1, 32)).unflatten(-1, (-1, 32))
    scales = blocks.abs().amax((1, 3)) / 448
    wide = scales.repeat_interleave(32, 0)[:rows].repeat_interleave(32, 1)
    q = (w / wide).to(torch.float8_e4m3fn)
    return {"weight": q, "weight_scale_inv": scales}, q.double() * wide.double()


def quantise_folder(folder: Path, config: dict[str, Any], write: Writer, skip: tuple[str, ...] = ("lm_head",)) -> Layer:
    """Rewrites the folder's linear layers of the blocks; the state dict of floats that it then stands for, float64."""
    path = folder / "model.safetensors"
    state, floats, found = load_file(path), {}, {}
    torch.manual_seed(1)
    for name, tensor in state.items():
        layer = name.removesuffix(".weight")
        if tensor.dim() != 2 or "layers" not in name or any(s in name for s in skip):
            found[name] = tensor
            floats[name] = tensor.double()
            continue
        parts, floats[name] = write(tensor.float())
        found.update({f"{layer}.{key}": part.contiguous() for key, part in parts.items()})
    save_file(found, path, metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    settings["quantization_config"] = config
    (folder / "config.json").write_text(json.dumps(settings))
    return floats
