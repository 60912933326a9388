"""Weights that other libraries have packed: which are refused and what to take instead, and those that are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...runtime.errors import CompileError

__all__ = ["is_packed", "refuse_format", "unpacked"]


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
    "Int4TilePackedTo4dTensor": _Format("int4 in the order of one kernel for GPUs", _INT4),
    "Int4PlainInt32Tensor": _Format("int4 in the order of one kernel for other devices", _INT4),
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
    return type(tensor).__name__ == "Int4Tensor" and hasattr(tensor, "qdata")


def unpacked(tensor: Any) -> torch.Tensor:
    """torchao's int4 of bytes with two values (Int4WeightOnlyConfig), whose products are for GPUs alone, as its int4
    of bytes with one, which torch exports.

    qdata [N, K / 2] holds -8 .. 7, the even ones in the lower halves; a weight is value * scale + zero_point with scale
    and zero_point [groups, N] (torchao/quantization/quantize_/workflows/int4/int4_tensor.py).
    """
    from torchao.quantization import IntxUnpackedToInt8Tensor

    if tensor.activation_dtype == torch.float8_e4m3fn:
        raise CompileError("an int4 weight wants activations in float8, which is not compiled", hint=f"Use {_INT4}.")
    if tensor.qdata.dim() != 2 or tensor.act_pre_scale is not None:
        raise CompileError("an int4 weight that is no matrix, or has scales of its activations", hint=f"Use {_INT4}.")
    raw = tensor.qdata.to(torch.uint8)
    halves = torch.stack((raw & 15, raw >> 4), -1).flatten(-2).to(torch.int8)
    values = torch.where(halves > 7, halves - 16, halves)
    scale, zero = tensor.scale.t().contiguous(), tensor.zero_point.t()
    zero = (-zero.float() / scale.float()).contiguous()
    block = tuple(tensor.block_size)
    four: torch.dtype = getattr(torch, "int4")  # noqa: B009  # which torch does not list
    result: torch.Tensor = IntxUnpackedToInt8Tensor(values, scale, zero, four, block, tensor.dtype, None)
    return result
