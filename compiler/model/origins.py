"""Where the constants of a graph come from: tensors of the model, and what passes have computed of them.

A package that knows this can be given the weights of a later training: each constant is computed again.

    s = w * rsqrt(var + eps)    ->    Made("aten.mul.Tensor", (FromModel("w"), Made("aten.rsqrt.default", ...)))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch

__all__ = [
    "FIXED",
    "Fixed",
    "FromModel",
    "Known",
    "Made",
    "Origin",
    "Value",
    "applied",
    "decoded",
    "encoded",
    "evaluate",
    "leaves",
    "made",
    "operand",
]

_DEEPEST = 200  # operators between a constant and a tensor of the model
_KEPT = 256  # elements of a fixed tensor whose value is kept


@dataclass(frozen=True)
class FromModel:
    """A tensor of the model's state_dict(), by all the names that it has there."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Fixed:
    """Tensors of which no tensor of the state_dict() is a part: tables, masks, buffers that are not saved."""


@dataclass(frozen=True)
class Value:
    """A small fixed tensor: its dtype, shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: str

    @property
    def tensor(self) -> torch.Tensor:
        raw = torch.tensor(list(bytes.fromhex(self.data)), dtype=torch.uint8)
        return raw.view(getattr(torch, self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class Made:
    """The result of an operator ("aten.cat.default", or a row of OWN) on origins and plain values."""

    function: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    depth: int = 1


Origin = FromModel | Fixed | Value | Made
FIXED = Fixed()


@dataclass(frozen=True)
class Known:
    """A tensor, and where it comes from; None: that is not known."""

    tensor: torch.Tensor
    origin: Origin | None


def scaled(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """weight * scale computed in float64, rounded once to the weight's dtype."""
    if weight.dtype != torch.float32:
        return (weight.double() * scale).to(weight.dtype)
    # numpy converts piece by piece in the cache: 5 times faster than a float64 copy of every weight
    source, out = weight.numpy(), np.empty(tuple(weight.shape), np.float32)
    np.multiply(source, scale.numpy(), out=out, dtype=np.float64, casting="same_kind")
    return torch.from_numpy(out)


OWN = {"scaled": scaled}


def applied(function: str, *args: Any, **kwargs: Any) -> Known:
    """The value of an operator by its name; operands, also in lists, may be Known."""
    with torch.no_grad():
        tensor = _resolve(function)(*_mapped(args, _tensor_of), **_mapped(kwargs, _tensor_of))
    return Known(tensor, made(function, _mapped(args, _origin_of), _mapped(kwargs, _origin_of)))


def made(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Origin | None:
    """The origin of an operator's result; operands are origins or plain values, _UNKNOWN where one is not known."""
    own = tuple(_frozen(a) for a in args), tuple((k, _frozen(v)) for k, v in kwargs.items())
    found = list(_origins(own))
    if any(isinstance(o, _Unknown) for o in found):
        return None
    if any(isinstance(o, Fixed) for o in found):  # whose value is not kept
        return None if any(leaves(o) for o in found) else FIXED
    depth = 1 + max((o.depth for o in found if isinstance(o, Made)), default=0)
    return None if depth > _DEEPEST else Made(function, *own, depth)


@dataclass(frozen=True)
class _Unknown:
    pass


_UNKNOWN = _Unknown()


def operand(origin: Origin | None, tensor: torch.Tensor | None = None) -> Any:
    """An operand of `made`; of a small fixed tensor its value."""
    if isinstance(origin, Fixed) and tensor is not None and 0 < tensor.numel() <= _KEPT:
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return Value(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), raw.hex())
    return _UNKNOWN if origin is None else origin


def _tensor_of(value: Any) -> Any:
    return value.tensor.detach() if isinstance(value, Known) else value


def _origin_of(value: Any) -> Any:
    return operand(value.origin, value.tensor) if isinstance(value, Known) else value


def _mapped(value: Any, function: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, function) for v in value)
    if isinstance(value, dict):
        return {k: _mapped(v, function) for k, v in value.items()}
    return function(value)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value


def _origins(value: Any) -> Iterator[Any]:
    if isinstance(value, (FromModel, Fixed, Value, Made, _Unknown)):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _origins(part)


def leaves(origin: Origin | None) -> set[FromModel]:
    """The tensors of the model that an origin reads."""
    if isinstance(origin, FromModel):
        return {origin}
    if not isinstance(origin, Made):
        return set()
    return {leaf for part in _origins((origin.args, origin.kwargs)) for leaf in leaves(part)}


def _resolve(function: str) -> Any:
    if function in OWN:
        return OWN[function]
    return reduce(getattr, function.split("."), torch.ops)


def evaluate(
    origin: Origin, tensors: Mapping[FromModel, torch.Tensor], known: dict[Origin, torch.Tensor]
) -> torch.Tensor:
    """The constant for these tensors of the model; `known` keeps what several constants share."""
    if isinstance(origin, FromModel):
        return tensors[origin]
    if isinstance(origin, Value):
        return origin.tensor
    if isinstance(origin, Fixed):
        raise ValueError("what is fixed has no other value")
    if origin not in known:

        def value(part: Any) -> Any:
            if isinstance(part, tuple):
                return [value(p) for p in part]
            return evaluate(part, tensors, known) if isinstance(part, (FromModel, Value, Made)) else part

        with torch.no_grad():
            known[origin] = _resolve(origin.function)(
                *(value(a) for a in origin.args), **{k: value(v) for k, v in origin.kwargs}
            )
    return known[origin]


# -- as JSON ----------------------------------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """An origin as JSON. Raises TypeError for an argument that JSON has no form for."""
    match value:
        case FromModel(names):
            return {"tensor": list(names)}
        case Fixed():
            return {"fixed": True}
        case Value():
            return {"value": value.data, "dtype": value.dtype, "shape": list(value.shape)}
        case Made():
            kwargs = {"kwargs": {k: encoded(v) for k, v in value.kwargs}} if value.kwargs else {}
            return {"call": value.function, "args": [encoded(a) for a in value.args], **kwargs}
        case tuple():
            return [encoded(v) for v in value]
        case torch.dtype() | torch.memory_format() | torch.layout() | torch.device():
            return {"torch": str(value).removeprefix("torch.")}
        case bool() | int() | str() | None:
            return value
        case float():
            return {"real": value.hex()}
    raise TypeError(f"{type(value).__name__} has no form")


def decoded(value: Any) -> Any:
    """What `encoded` wrote."""
    match value:
        case {"tensor": names}:
            return FromModel(tuple(names))
        case {"fixed": _}:
            return FIXED
        case {"value": data, "dtype": dtype, "shape": shape}:
            return Value(dtype, tuple(shape), data)
        case {"call": function, "args": args}:
            kwargs = tuple((k, decoded(v)) for k, v in value.get("kwargs", {}).items())
            return Made(function, tuple(decoded(a) for a in args), kwargs)
        case {"torch": name}:
            return torch.device(name) if name.startswith(("cpu", "cuda")) else getattr(torch, name)
        case {"real": text}:
            return float.fromhex(text)
        case list():
            return tuple(decoded(v) for v in value)
    return value
