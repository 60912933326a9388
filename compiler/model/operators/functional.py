"""Operators of the user's own that write to their arguments, as functional ones of mycc's.

    step(p, m, lr)  writes to m, gives y       ->       y, new_m = mycc::ns__step(p, m, lr)

The twin takes the same arguments. It gives the results of the operator, then the new value of every tensor that it
writes to, in the order of the schema: those of a list one by one, none for None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from .own import own_operator

__all__ = ["behind_twin", "functional_twin", "tensors_of", "twin_key", "written_arguments"]

_twins: dict[str, OpOverload] = {}  # by the twin's key: the operator that it stands for


def twin_key(key: str) -> str:
    """Of an overload "ns.op.default", the twin's."""
    return f"mycc.{_twin_name(key)}.default"


def _twin_name(key: str) -> str:
    return "__".join(key.removesuffix(".default").split("."))


def behind_twin(target: object) -> OpOverload | None:
    """The operator that a twin stands for; None for any other target."""
    return _twins.get(str(target))


def functional_twin(operator: OpOverload) -> OpOverload:
    """The twin of an operator that writes to its arguments."""
    key = twin_key(str(operator))
    if _twins.get(key) is not operator:
        known = key in _twins
        _twins[key] = operator
        if not known:
            _define(_twin_name(str(operator)), key, operator)
    twin: OpOverload = getattr(torch.ops.mycc, _twin_name(str(operator))).default
    return twin


def _define(name: str, key: str, operator: OpOverload) -> None:
    text = re.sub(r"\(\w+!?( ?-> ?\w+)?\)(?=[ \[?])", "", str(operator._schema))
    parameters = text[text.index("(") : text.rindex("->")].strip()

    def call(*args: Any, **kwargs: Any) -> list[Tensor]:
        given, named = pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, (args, kwargs))
        results = _twins[key](*given, **named)
        return [*_flat(results), *tensors_of(written_arguments(_twins[key], given, named))]

    own_operator(f"{name}{parameters} -> Tensor[]")(call)


def written_arguments(operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The arguments that an operator writes to, by name: those of a call."""
    found = []
    for i, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            found.append((argument.name, value))
    return found


def tensors_of(arguments: Sequence[tuple[str, Any]]) -> list[Any]:
    """What they are one by one: those of a list, none for None."""
    return [t for _, value in arguments for t in _flat(value)]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _flat(part)
    elif value is not None:
        yield value
