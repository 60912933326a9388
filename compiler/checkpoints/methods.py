"""The ways to quantise that config.json may name: which are taken, and how their layers are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...runtime.errors import CompileError
from .compressed import read_compressed
from .fp8 import read_fp8
from .gptq import read_awq, read_gptq
from .weights import PackedWeight

__all__ = ["Method", "method_of"]

Read = Callable[[str, tuple[int, int], Callable[[str], Tensor], Mapping[str, Any]], PackedWeight]


@dataclass(frozen=True)
class Method:
    """marks: last names of tensors of which a quantised layer has one. ignored: of those that nothing reads."""

    title: str
    read: Read
    marks: tuple[str, ...]
    ignored: tuple[str, ...] = ()


_METHODS = {
    "gptq": Method("GPTQ", read_gptq, ("qweight",), ("g_idx",)),
    "awq": Method("AWQ", read_awq, ("qweight",)),
    "compressed-tensors": Method(
        "compressed-tensors", read_compressed, ("weight_packed", "weight_scale"),
        ("weight_shape", "input_scale", "input_zero_point", "output_scale", "k_scale", "v_scale", "q_scale"),
    ),
    "fp8": Method("FP8", read_fp8, ("weight_scale_inv", "weight_scale"), ("input_scale", "activation_scale")),
}  # fmt: skip
#: values that a field of quantization_config may have; others are told
_TAKEN: dict[str, dict[str, tuple[Any, ...]]] = {
    "gptq": {"checkpoint_format": ("gptq", "gptq_v2"), "bits": (4, 8)},
    "awq": {"version": ("gemm", "GEMM"), "bits": (4,), "zero_point": (True,)},
}
_INSTEAD = (
    "Take the checkpoint as GPTQ, AWQ (gemm), compressed-tensors or GGUF, or the model in bfloat16 with --quantize."
)
#: what a tensor of a layer that is not quantised is called
_PLAIN = ("weight", "bias")


def method_of(config: Mapping[str, Any], names: Iterable[str]) -> Method:
    """How the checkpoint of a quantization_config is read.

    names: of its tensors, of which a refusal names a layer.

    Raises:
        CompileError: the method, or what the configuration says of it, is not taken.
    """
    kind = str(config.get("quant_method", "")).lower()
    if kind not in _METHODS:
        what = _bitsandbytes(config) if kind == "bitsandbytes" else kind or "quant_method is not set"
        raise CompileError(
            f"weights that are quantised by {what} are not taken", details=_example(names), hint=_INSTEAD
        )
    for field, values in _TAKEN.get(kind, {}).items():
        if field in config and config[field] not in values and not config.get("dynamic"):
            known = " or ".join(str(v) for v in values)
            raise CompileError(
                f"{_METHODS[kind].title} with {field} {config[field]!r} is not taken, only {known}",
                details=_example(names), hint=_INSTEAD,
            )  # fmt: skip
    return _METHODS[kind]


def _bitsandbytes(config: Mapping[str, Any]) -> str:
    kind = config.get("bnb_4bit_quant_type", "fp4") if config.get("load_in_4bit") else "int8"
    return f"bitsandbytes ({kind})"


def _example(names: Iterable[str]) -> list[str]:
    """The first layer that has a tensor of another name than layers of floats."""
    odd = next((n for n in sorted(names) if n.rpartition(".")[2] not in _PLAIN), None)
    return (
        [] if odd is None else [f"{odd.split('.weight')[0].removesuffix('.' + odd.rpartition('.')[2])}: it has {odd}"]
    )
