"""Rules: operators that treat both parts alike (views, selections, sums), and those that make tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .parts import Call, Complex, Refused, cast, is_complex, is_complex_dtype, parts, rule, zip_parts

#: operators that are applied to either part by itself
EACH = """
view reshape permute transpose t expand squeeze unsqueeze slice select split split_with_sizes chunk unbind tensor_split
repeat narrow unflatten flatten flip roll tril triu pixel_shuffle pixel_unshuffle
channel_shuffle diagonal diagonal_copy movedim unfold cat stack constant_pad_nd _reshape_copy _unsafe_view
index_select gather index _unsafe_index take embedding
scatter scatter_add index_add index_copy index_fill index_put _unsafe_index_put put masked_fill where
select_scatter slice_scatter diagonal_scatter masked_scatter copy fill
sum cumsum mean nansum trace diff
full scalar_tensor zeros zeros_like new_zeros empty empty_like new_empty new_full full_like empty_strided
new_empty_strided empty_permuted rand rand_like uniform pad replication_pad1d replication_pad2d replication_pad3d
reflection_pad1d reflection_pad2d reflection_pad3d
"""
#: arguments that hold elements: of these, either part goes into its own call
_DATA = frozenset("self input tensors tensor src source values value other fill_value s mat".split())


def each(call: Call, *args: Any, **kwargs: Any) -> Any:
    """f(a, i) -> (f(re a, i), f(im a, i)); real operands beside complex ones have an imaginary zero."""
    schema = call.target._schema.arguments
    real = call.real
    if not is_complex(call.val):  # empty_like(x, dtype=torch.float64)
        return call.target(*(a.re if isinstance(a, Complex) else a for a in args), **kwargs)

    def side(part: int) -> Any:
        own = [_part(a, part, real) if _is_data(s.name, a) else a for a, s in zip(args, schema, strict=False)]
        named = {k: _part(v, part, real) if _is_data(k, v) else v for k, v in kwargs.items()}
        named.update({k: v.to_real() for k, v in kwargs.items() if is_complex_dtype(v)})
        own = [a.to_real() if is_complex_dtype(a) else a for a in own]
        if any(s.name == "dtype" for s in schema) and "fill_value" in {s.name for s in schema} | {"s"}:
            named.setdefault("dtype", real)
        return call.target(*own, **named)

    return zip_parts(side(0), side(1))


def _is_data(name: str, value: Any) -> bool:
    """Whether an argument holds elements: by its name, or because complex ones are in it."""
    if isinstance(value, Complex):
        return True
    if isinstance(value, (tuple, list)):
        found = [isinstance(v, Complex) for v in value]
        return any(found) or (name in _DATA and any(isinstance(v, Tensor) for v in value))
    return name in _DATA


def _part(value: Any, part: int, dtype: torch.dtype) -> Any:
    if isinstance(value, Complex):
        return parts(value, dtype)[part]
    if isinstance(value, Tensor):
        return cast(value, dtype) if part == 0 else torch.zeros_like(value, dtype=dtype)
    if isinstance(value, (tuple, list)):
        return [_part(v, part, dtype) for v in value]
    if isinstance(value, (int, float, complex)):
        return parts(value, dtype)[part]
    return value


rule(EACH)(each)


@rule("clone contiguous alias detach lift lift_fresh lift_fresh_copy positive resolve_conj resolve_neg alias_copy")
def same(call: Call, a: Complex, *_: Any, **__: Any) -> Complex:
    return a


@rule("ones ones_like new_ones eye")
def ones(call: Call, *args: Any, **kwargs: Any) -> Any:
    args = tuple(a.re if isinstance(a, Complex) else a for a in args)
    made = call.target(*args, **{**kwargs, "dtype": call.real})
    return Complex(made, torch.zeros_like(made)) if is_complex(call.val) else made


@rule("normal_functional")
def normal(call: Call, x: Complex, mean: float = 0.0, std: float = 1.0, **kwargs: Any) -> Complex:
    """The mean in either part, and half of the variance."""
    return Complex(*(call.target(part, mean, std * 0.5**0.5, **kwargs) for part in x))


@rule("randn randn_like")
def randn(call: Call, *args: Any, **kwargs: Any) -> Any:
    """Half of the variance in either part."""
    made = each(call, *args, **kwargs)
    return Complex(made.re * 0.5**0.5, made.im * 0.5**0.5) if isinstance(made, Complex) else made


@rule("where.ScalarOther where.ScalarSelf where.Scalar")
def where_number(call: Call, condition: Tensor, a: Any, b: Any) -> Complex:
    x, y = parts(a, call.real), parts(b, call.real)
    return Complex(*(torch.where(condition, u, v).to(call.real) for u, v in zip(x, y, strict=True)))


@rule("linspace linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor")
def linspace(call: Call, start: Any, end: Any, steps: Any, **_: Any) -> Complex:
    """Each part walks evenly from start to end."""
    return Complex(
        *(
            torch.linspace(a, b, steps, dtype=call.real)
            if not (isinstance(a, Tensor) or isinstance(b, Tensor))
            else a + (b - a) * torch.linspace(0, 1, steps, dtype=call.real)
            for a, b in zip(parts(start, call.real), parts(end, call.real), strict=True)
        )
    )


@rule("as_strided as_strided_copy")
def as_strided(call: Call, x: Complex, size: Any, stride: Any, offset: Any = None) -> Complex:
    """On both parts side by side in memory, with a last dimension of two."""
    both = call.target(_memory(call, x), *_doubled(size, stride, offset))
    return Complex(both.select(-1, 0), both.select(-1, 1))


@rule("as_strided_scatter")
def as_strided_scatter(call: Call, x: Complex, src: Any, size: Any, stride: Any, offset: Any = None) -> Complex:
    source = parts(src, call.real)
    args = (torch.stack([source.re, source.im], -1), *_doubled(size, stride, offset))
    both = call.target(_memory(call, x), *args)
    return Complex(both.select(-1, 0), both.select(-1, 1))


def _memory(call: Call, x: Complex) -> Tensor:
    val = call.operand
    whole = val.untyped_storage().nbytes() == val.numel() * val.element_size()
    if not whole or not val.is_contiguous() or val.storage_offset() != 0:
        raise Refused("strides of a tensor that is a view; make it contiguous")
    return torch.stack([x.re, x.im], -1)


def _doubled(size: Any, stride: Any, offset: Any) -> tuple[Any, Any, Any]:
    return [*size, 2], [*(2 * s for s in stride), 1], 2 * (offset or 0)


@rule("scatter.reduce scatter.value_reduce")
def scatter_with(call: Call, *args: Any, reduce: str) -> Any:
    if reduce == "add":
        return each(call, *args, reduce=reduce)
    raise Refused("multiplying complex numbers into places that an index names is not supported")


@rule("scatter_reduce index_reduce")
def reduced_at_places(call: Call, *args: Any, include_self: bool = True) -> Any:
    if args[4] in ("sum", "mean"):
        return each(call, *args, include_self=include_self)
    raise Refused("multiplying complex numbers into places that an index names is not supported")
