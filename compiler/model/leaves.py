"""The tensors among a model's arguments, with their names, and what the user said about their dimensions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError

__all__ = ["Argument", "Dims", "Leaf", "bind", "find_leaf", "is_dynamic", "leaves_of", "shapes_by_leaf"]

Dims = dict[int, Any]  # dimension -> torch.export.Dim or hint


@dataclass(frozen=True)
class Leaf:
    """A value among the arguments: `cache_0` for the first element of argument `cache`."""

    name: str
    path: tuple[Any, ...]
    value: Any

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, and so an input or an output; else it is a constant."""
        return isinstance(self.value, torch.Tensor)


@dataclass(frozen=True)
class Argument:
    """One argument of the call.

    Attributes:
        name: for the user.
        value: of the example.
        path: where torch.export's dynamic_shapes describes it: ("x",), or ("rest", 0) of *rest, ("extra", "x") of
            **extra.
        place: of its parameter in the signature.
    """

    name: str
    value: Any
    path: tuple[Any, ...]
    place: int = 0


def bind(forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Argument]:
    """The arguments of a call, positional ones first, in the order of the call, by parameter name."""
    signature = inspect.signature(forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        described = ", ".join(str(p) for p in signature.parameters.values())
        raise CompileError(f"the example inputs do not fit forward({described}): {error}") from None
    result: list[Argument] = []
    places = {name: place for place, name in enumerate(signature.parameters)}
    parameters = iter(signature.parameters.values())
    parameter = None
    for position, value in enumerate(args):
        if parameter is None or parameter.kind is not parameter.VAR_POSITIONAL:
            parameter, first = next(parameters), position
        if parameter.kind is parameter.VAR_POSITIONAL:
            index = position - first
            path: tuple[Any, ...] = (parameter.name, index)
            result.append(Argument(f"{parameter.name}_{index}", value, path, places[parameter.name]))
        else:
            result.append(Argument(parameter.name, value, (parameter.name,), places[parameter.name]))
    extra = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    for name, value in kwargs.items():
        path = (name,) if name in signature.parameters else (extra[0], name)
        result.append(Argument(name, value, path, places[path[0]]))
    return result


def _is_container(value: Any) -> bool:
    kind = pytree._get_node_type(value)
    return kind in pytree.SUPPORTED_NODES


def _children(value: Any) -> tuple[list[Any], list[Any]]:
    """(children, a short key for each) of one level of a pytree."""
    kind = pytree._get_node_type(value)
    children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    children = list(children)
    named = isinstance(context, list) and len(context) == len(children) and all(isinstance(c, str) for c in context)
    if kind is dict or named:
        return children, list(context)
    if names := getattr(context, "_fields", None):
        return children, list(names)
    with_keys = pytree.SUPPORTED_NODES[kind].flatten_with_keys_fn
    keys = [_short(key) for key, _ in with_keys(value)[0]] if with_keys is not None else range(len(children))
    return children, list(keys)


def _short(key: Any) -> Any:
    """What a key of torch's pytree holds: of a mapping, a sequence or an attribute."""
    return next((getattr(key, field) for field in ("key", "idx", "name") if hasattr(key, field)), str(key))


def leaves_of(arguments: Sequence[Argument]) -> list[Leaf]:
    """All leaves of the arguments in order (that of tree_flatten((args, kwargs))), tensors and others."""
    result: list[Leaf] = []

    def walk(value: Any, path: tuple[Any, ...]) -> None:
        if not _is_container(value):
            result.append(Leaf(re.sub(r"\W", "_", "_".join(str(p) for p in path)), path, value))
            return
        for child, key in zip(*_children(value), strict=True):
            walk(child, (*path, key))

    for argument in arguments:
        walk(argument.value, (argument.name,))
    return result


def find_leaf(leaves: Sequence[Leaf], name: str, what: str) -> int:
    """The index in `leaves` of the tensor that the user named (by name, or by its position among the tensors)."""
    tensors = [i for i, leaf in enumerate(leaves) if leaf.is_tensor]
    if name.isdigit() and int(name) < len(tensors):
        return tensors[int(name)]
    for i in tensors:
        if leaves[i].name == name or ".".join(str(p) for p in leaves[i].path) == name:
            return i
    names = ", ".join(leaves[i].name for i in tensors) or "none"
    raise CompileError(f"{what}: the model has no tensor input '{name}'", hint=f"Its tensor inputs: {names}.")


def shapes_by_leaf(arguments: Sequence[Argument], shapes: Any) -> list[Dims]:
    """dynamic_shapes in torch.export's form (by argument, nested like the arguments) as one dict per leaf.

    Dimensions that stay fixed (None, an int, Dim.STATIC) are left out.
    """
    result: list[Dims] = []
    by_parameter = _by_parameter(arguments, shapes or {})
    for argument in arguments:
        shape: Any = by_parameter.get(argument.path[0])
        if len(argument.path) == 2 and shape is not None:
            siblings = [other.path[1] for other in arguments if other.path[0] == argument.path[0]]
            shape = _inner(shape, argument, siblings)
        _walk_shapes(argument.value, shape, argument.name, result)
    return result


def _inner(shape: Any, argument: Argument, siblings: Sequence[Any]) -> Any:
    """The entry of one element of *args or **kwargs; siblings: the keys of all."""
    parameter, key = argument.path
    if isinstance(key, int):
        if isinstance(shape, (tuple, list)) and len(shape) == len(siblings):
            return shape[key]
        found = f"has {len(shape)}" if isinstance(shape, (tuple, list)) else f"is a {type(shape).__name__}"
        raise CompileError(
            f"dynamic_shapes of '*{parameter}' {found}, not a tuple of {len(siblings)}",
            hint="It has an entry for each argument, in a tuple of its own: (({0: batch}, ...),).",
        )
    if not isinstance(shape, Mapping):
        raise CompileError(f"dynamic_shapes of '**{parameter}' is a {type(shape).__name__}, not a dict by name")
    for name in shape:
        if name not in siblings:
            raise CompileError(
                f"dynamic_shapes of '**{parameter}' names {name!r}, which the model is not called with",
                hint=f"Its arguments: {', '.join(siblings)}.",
            )
    return shape.get(key)


def _by_parameter(arguments: Sequence[Argument], shapes: Any) -> dict[Any, Any]:
    in_order = sorted(arguments, key=lambda argument: argument.place)  # torch's, whatever the order of the call
    parameters = list(dict.fromkeys(argument.path[0] for argument in in_order))
    if isinstance(shapes, (tuple, list)):
        if len(shapes) != len(parameters):
            raise CompileError(
                f"dynamic_shapes has {len(shapes)} entries, the model is called with {len(parameters)} arguments",
                hint=f"Its arguments: {', '.join(parameters)}.",
            )
        return dict(zip(parameters, shapes, strict=True))
    if not isinstance(shapes, Mapping):
        raise CompileError(f"dynamic_shapes is a {type(shapes).__name__}, not a dict, tuple or list")
    result: dict[Any, Any] = {}
    nested = {argument.path[1]: argument.path[0] for argument in arguments if len(argument.path) == 2}
    for key, shape in shapes.items():
        if key in parameters:
            result[key] = shape
        elif key in nested:  # a key of **kwargs, written beside the other arguments
            result.setdefault(nested[key], {})[key] = shape
        else:
            raise CompileError(
                f"dynamic_shapes names '{key}', which the model is not called with",
                hint=f"Its arguments: {', '.join(a.name for a in arguments)}.",
            )
    return result


def _walk_shapes(value: Any, shape: Any, name: str, result: list[Dims]) -> None:
    if not _is_container(value):
        result.append(_dims(value, shape, name))
        return
    children, keys = _children(value)
    if shape is None:
        parts: list[Any] = [None] * len(children)
    elif isinstance(shape, Mapping) and all(key in keys for key in shape):
        parts = [shape.get(key) for key in keys]
    elif isinstance(shape, (tuple, list)) and len(shape) == len(children):
        parts = list(shape)
    else:
        raise CompileError(f"dynamic_shapes of '{name}' does not have the structure of the argument")
    for child, part, key in zip(children, parts, keys, strict=True):
        _walk_shapes(child, part, f"{name}_{key}", result)


def _dims(value: Any, shape: Any, name: str) -> Dims:
    if shape is None:
        return {}
    if not isinstance(value, torch.Tensor):
        kind = type(value).__name__
        raise CompileError(f"dynamic_shapes of '{name}' must be None: the example is a {kind}, not a tensor")
    if isinstance(shape, (tuple, list)):
        if len(shape) != value.ndim:
            raise CompileError(f"dynamic_shapes of '{name}' has {len(shape)} dimensions, its example {value.ndim}")
        shape = dict(enumerate(shape))
    if not isinstance(shape, Mapping):
        raise CompileError(f"dynamic_shapes of '{name}' is a {type(shape).__name__}, not a dict, tuple or list")
    for dim in shape:
        if not isinstance(dim, int) or not -value.ndim <= dim < value.ndim:
            rank = f"its example has {value.ndim} dimensions"
            raise CompileError(f"dynamic_shapes of '{name}' names dimension {dim!r}; {rank}")
    for dim, size in shape.items():
        _check_size(size, value.shape[dim], f"dynamic_shapes of '{name}', dimension {dim}")
    return {dim % value.ndim: size for dim, size in shape.items() if is_dynamic(size)}


def _check_size(size: Any, example: int, where: str) -> None:
    """Refuses what says nothing about a dimension, and fixed sizes that the example does not have."""
    if isinstance(size, int) and size != example:
        raise CompileError(f"{where}, is fixed to {size}, but its example has {example}")
    if size is not None and not isinstance(size, int) and not hasattr(size, "max"):
        hint = 'torch.export.Dim("batch", min=1, max=64), Dim.DYNAMIC, Dim.AUTO, or None for a fixed size.'
        raise CompileError(f"{where}, is {size!r}, which is no size", hint=f"It is {hint}")


def is_dynamic(size: Any) -> bool:
    """Whether a dimension's entry asks for a size that changes."""
    if size is None or isinstance(size, int):
        return False
    kind = getattr(size, "type", None)
    return getattr(kind, "name", "") != "STATIC"
