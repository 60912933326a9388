"""What the command line says about inputs: `x=f32[1,3,224,224]` and `x:0=batch(1..64)`."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError
from ..model.graph import DTYPE_NAMES
from ..model.leaves import (
    Argument,
    Dims,
    Leaf,
    bind,
    find_leaf,
    leaves_of,
)

__all__ = ["dynamic_dims", "made_inputs", "override_inputs"]

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
_INPUT = re.compile(r"(?P<name>[^=\s]+)\s*=\s*(?P<dtype>\w+)\s*(?:\[(?P<shape>[\d,\s]*)\])?")
_DYNAMIC = re.compile(r"(?P<name>[^:=\s]+)\s*:\s*(?P<dim>-?\d+)\s*=\s*(?P<size>.+)")
_SIZE = re.compile(
    r"(?:(?P<scale>\d+)\s*\*\s*)?(?P<symbol>[A-Za-z_]\w*)\s*(?:(?P<sign>[+-])\s*(?P<offset>\d+))?"
    r"\s*(?:\(\s*(?P<min>\d+)?\s*\.\.\s*(?P<max>\d+)?\s*\))?"
)


def override_inputs(
    forward: Any, args: Sequence[Any], kwargs: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example inputs with some replaced, each by a text such as `x=f32[1,3,224,224]` (name or position).

    Integers are cut or repeated from the example, so that they stay valid for the model; floats are drawn anew.
    """
    if not overrides:
        return tuple(args), dict(kwargs)
    leaves = leaves_of(bind(forward, args, kwargs))
    values = [leaf.value for leaf in leaves]
    for text in overrides:
        name, dtype, shape = _read(text)
        index = find_leaf(leaves, name, f"--input '{text}'")
        values[index] = _example(leaves[index], dtype, shape)
    _, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    new_args, new_kwargs = pytree.tree_unflatten(values, spec)
    return new_args, new_kwargs


def made_inputs(forward: Any, texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs of a model whose file has none, each from a text such as `x=f32[1,3,224,224]` (name or position).

    Floats are drawn from a normal distribution; integers and bools are 0 or 1, which every table of two rows holds.

    Raises:
        CompileError: a text cannot be read, or names no parameter of `forward`; or one is missing.
    """
    parameters = inspect.signature(forward).parameters
    plain = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    given: dict[str, torch.Tensor] = {}
    for text in texts:
        name, dtype, shape = _read(text)
        if name.isdecimal() and int(name) < len(plain):
            name = plain[int(name)]
        if name not in parameters and not (named and name.isidentifier()):
            raise CompileError(
                f"--input '{text}': forward() has no parameter '{name}'", hint=f"It has: {', '.join(parameters)}."
            )
        given[name] = _drawn(dtype, shape)
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in _VARIADIC]
    if missing := [name for name in needed if name not in given]:
        raise CompileError(
            f"the model has no example input for '{missing[0]}' of forward({', '.join(parameters)})",
            hint=f"Add --input {missing[0]}=DTYPE[SIZES], or put example_inputs into its file.",
        )
    leading = list(itertools.takewhile(given.__contains__, plain))
    return tuple(given.pop(name) for name in leading), given


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _read(text: str) -> tuple[str, torch.dtype, tuple[int, ...]]:
    match = _INPUT.fullmatch(text.strip())
    if match is None:
        raise CompileError(f"cannot read --input '{text}'", hint="It looks like x=f32[1,3,224,224].")
    shape = tuple(int(size) for size in (match["shape"] or "").split(",") if size.strip())
    return match["name"], _dtype(match["dtype"], text), shape


def _dtype(name: str, text: str) -> torch.dtype:
    dtype = _DTYPES.get(name) or getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CompileError(f"--input '{text}': unknown dtype '{name}'", hint=f"Dtypes: {', '.join(_DTYPES)}.")
    return dtype


def _example(leaf: Leaf, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    old: torch.Tensor = leaf.value
    floating = dtype.is_floating_point or dtype.is_complex
    if floating or not old.numel() or old.dtype.is_floating_point:
        return _drawn(dtype, shape)
    return old.reshape(-1)[torch.arange(math.prod(shape)) % old.numel()].reshape(shape).to(dtype)


def _drawn(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def dynamic_dims(arguments: Sequence[Argument], dims: Sequence[Dims], texts: Sequence[str]) -> list[Dims]:
    """`dims` (per leaf) with the dynamic dimensions of the command line added, such as `x:0=batch(1..64)`.

    A size is a symbol or scale*symbol + offset; the range belongs to the symbol and may be given at any of its uses.
    """
    result = [dict(by_axis) for by_axis in dims]
    leaves = leaves_of(arguments)
    parsed = [_parse_dynamic(text, leaves) for text in texts]
    symbols = _symbols([match for _, _, match in parsed])
    for index, axis, match in parsed:
        dim = symbols[match["symbol"]]
        if match["scale"] and int(match["scale"]) != 1:
            dim = int(match["scale"]) * dim
        if match["offset"] and int(match["offset"]):
            dim = dim + int(match["sign"] + match["offset"])
        result[index][axis] = dim
    return result


def _parse_dynamic(text: str, leaves: Sequence[Leaf]) -> tuple[int, int, re.Match[str]]:
    match = _DYNAMIC.fullmatch(text.strip())
    size = _SIZE.fullmatch(match["size"].strip()) if match else None
    if match is None or size is None:
        raise CompileError(f"cannot read --dynamic '{text}'", hint="It looks like x:0=batch(1..64), or x:1=2*half.")
    index = find_leaf(leaves, match["name"], f"--dynamic '{text}'")
    rank, axis = leaves[index].value.ndim, int(match["dim"])
    if not -rank <= axis < rank:
        raise CompileError(f"--dynamic '{text}': input '{leaves[index].name}' has {rank} dimensions, 0 to {rank - 1}")
    return index, axis % rank, size


def _symbols(matches: Sequence[re.Match[str]]) -> dict[str, Any]:
    bounds: dict[str, tuple[str | None, str | None]] = {}
    for match in matches:
        found = (match["min"], match["max"])
        known = bounds.get(match["symbol"], (None, None))
        if found != (None, None) and known not in ((None, None), found):
            raise CompileError(f"--dynamic gives two ranges for '{match['symbol']}'")
        bounds[match["symbol"]] = found if found != (None, None) else known
    result: dict[str, Any] = {}
    for name, (low, high) in bounds.items():
        lo, hi = int(low) if low else None, int(high) if high else None
        if hi is not None and (lo or 1) > hi:
            raise CompileError(f"--dynamic: the range {lo or 1}..{hi} of '{name}' is empty")
        if hi is not None and (lo or 1) == hi:
            raise CompileError(f"--dynamic: the range {hi}..{hi} of '{name}' has one size only; leave it fixed")
        result[name] = torch.export.Dim(name, min=lo, max=hi)
    return result
