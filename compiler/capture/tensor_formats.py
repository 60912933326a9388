"""Weights that other libraries have packed: which are refused and what to take instead, and those that are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...runtime.errors import CompileError

__all__ = ["check_packed", "is_packed", "refuse_format", "unpacked"]


@dataclass(frozen=True)
class _Format:
    """What a class of tensors holds, and the configuration of torchao or the option of mycc that is compiled."""

    what: str
    instead: str


_INT4 = "torchao's IntxWeightOnlyConfig(weight_dtype=torch.int4), or --quantize int4 on the model with floats"
_INT8 = "torchao's Int8WeightOnlyConfig, or --quantize int8 on the model with floats"

#: by the name of the class
_REFUSED = {
    "MXTensor": _Format("in an mx format (numbers of 8, 6 or 4 bits with a power of two for 32)", _INT8),
    "NVFP4Tensor": _Format("in nvfp4 (floats of 4 bits)", _INT4),
    "NF4Tensor": _Format("in nf4 (a table of 16 numbers)", _INT4),
    "Params4bit": _Format("in bitsandbytes' 4 bits (nf4 or fp4)", _INT4),
    "Int8Params": _Format("in bitsandbytes' int8", _INT8),
    "Float8Sparse2x4_1DData1DMetadataTensor": _Format("float8 with two of four numbers", "Float8WeightOnlyConfig"),
    "Float8Sparse2x4_2DData2DMetadataTensor": _Format("float8 with two of four numbers", "Float8WeightOnlyConfig"),
    "SparseSemiStructuredTensorCUTLASS": _Format("sparse, two of four numbers", _INT8),
    "SparseSemiStructuredTensorCUSPARSELT": _Format("sparse, two of four numbers", _INT8),
    "BlockSparseTensor": _Format("sparse by blocks", _INT8),
    "Int4PreshuffledTensor": _Format("int4 in the order of one kernel for GPUs", _INT4),
    "Int4OpaqueTensor": _Format("int4 in the order of torch's kernel for this CPU", _INT4),
    "Float8OpaqueTensor": _Format("float8 in the order of torch's kernel for this CPU", "Float8WeightOnlyConfig"),
    "IntxOpaqueTensor": _Format("packed for torchao's kernels for ARM", _INT4),
    "CodebookQuantizedTensor": _Format("places in a table of numbers", _INT4),
    "UIntxBitPackedTensor": _Format("packed by torchao's prototype", _INT4),
    "BitNetPacked2bitLinearWeight": _Format("of 2 bits", _INT4),
}


def refuse_format(tensor: torch.Tensor, name: str) -> None:
    """Raises CompileError for a weight in a format that is not compiled; it names the layer and what to use."""
    row = _REFUSED.get(type(tensor).__name__)
    if row is not None:
        layer = name.rpartition(".")[0] or name
        raise CompileError(
            f"the weight of '{layer}' is {row.what} ({type(tensor).__name__}), which is not compiled",
            hint=f"Use {row.instead}.",
        )


def is_packed(tensor: object) -> bool:
    """Whether `unpacked` has another form for a weight."""
    return type(tensor).__name__ in _READ and hasattr(tensor, "qdata")


def check_packed(tensor: Any, name: str) -> None:
    """Raises CompileError, with the layer, for a weight in such an order that is not compiled."""
    block, layer = tensor.block_size[-1], name.rpartition(".")[0] or name
    reasons = {
        "wants activations in float8": getattr(tensor, "activation_dtype", None) == torch.float8_e4m3fn,
        "is no matrix": tensor.dim() != 2,
        "has scales of its activations": tensor.act_pre_scale is not None,
        f"has groups of {block}, which do not divide its columns": bool(tensor.shape[-1] % block),
        "is in the order of a kernel for NPUs": type(tensor).__name__ == "Int4PlainInt32Tensor"
        and tensor.zero_point.is_floating_point(),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    if reason is not None:
        raise CompileError(f"the int4 weight of '{layer}' {reason}, which is not compiled", hint=f"Use {_INT4}.")


def unpacked(tensor: Any) -> torch.Tensor:
    """torchao's int4 that lies in the order of a kernel (Int4WeightOnlyConfig), whose products are for other devices
    alone, as its int4 of bytes with one value, which torch exports.
    """
    from torchao.quantization import IntxUnpackedToInt8Tensor

    block, sizes = tuple(tensor.block_size), tuple(tensor.shape)
    values, scale, zero = _READ[type(tensor).__name__](tensor)
    groups = sizes[1] // block[1]
    scale, zero = (part[: sizes[0], :groups].contiguous() for part in (scale, zero))
    four: torch.dtype = getattr(torch, "int4")  # noqa: B009  # which torch does not list
    own = values[: sizes[0], : sizes[1]].contiguous()
    result: torch.Tensor = IntxUnpackedToInt8Tensor(own, scale, zero, four, block, tensor.dtype, None)
    return result


#: values int8 [N, K] from -8 to 7, scales and zeros [N, groups]: a weight is (value - zero) * scale
_Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _halves(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [..., n] as the values of four bits that lie in them, the lower ones first, [..., 2 n]."""
    return torch.stack((packed & 15, packed >> 4), -1).flatten(-2).to(torch.int8)


def _plain(tensor: Any) -> _Parts:
    """qdata int8 [N, K / 2] holds -8 .. 7, the even ones in the lower halves; a weight is value * scale + zero_point,
    both [groups, N] (torchao/quantization/quantize_/workflows/int4/int4_tensor.py)."""
    halves = _halves(tensor.qdata.view(torch.uint8))
    scale = tensor.scale.t()
    return torch.where(halves > 7, halves - 16, halves), scale, -tensor.zero_point.t().float() / scale.float()


def _int32(tensor: Any) -> _Parts:
    """qdata int32 [N, K / 8] holds 0 .. 15, the first in the lowest bits; a weight is (value - zero_point) * scale,
    both [groups, N] (int4_plain_int32_tensor.py, as it is made for Intel's GPUs)."""
    values = _halves(tensor.qdata.view(torch.uint8)) - 8
    return values, tensor.scale.t(), tensor.zero_point.t() - 8


def _tiles(tensor: Any) -> _Parts:
    """qdata int32 [N / 8, K / 128, 32, 4] holds 0 .. 15 as the lanes of a warp take them, by
    aten::_convert_weight_to_int4pack; a weight is (value - 8) * scale + zero, scale_and_zero [groups, N, 2]
    (int4_tile_packed_to_4d_tensor.py).

    Lane t of a warp has row t / 4 of a tile, and of each 32 columns the eight h * 16 + m * 8 + t % 4 * 2 + l for h, m
    and l of 0 and 1, in the order l, h, m from the highest bits to the lowest.
    """
    tiles, chunks = tensor.qdata.shape[:2]
    bits = _halves(tensor.qdata.contiguous().view(torch.uint8)).reshape(tiles, chunks, 8, 4, 4, 2, 2, 2)
    # tile, chunk, row, lane, 32 columns, l, h, m  ->  tile, row, chunk, 32 columns, h, m, lane, l
    values = bits.permute(0, 2, 1, 4, 6, 7, 3, 5).reshape(tiles * 8, chunks * 128) - 8
    scale, zero = (part.t() for part in tensor.scale_and_zero.unbind(-1))
    return values, scale, -zero.float() / scale.float()


_READ = {"Int4Tensor": _plain, "Int4PlainInt32Tensor": _int32, "Int4TilePackedTo4dTensor": _tiles}
