"""What the rules work on: a complex value as two real ones, and the table that the rules are kept in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: parts of a complex value: tensors, or two numbers
Part = Any


class Complex(NamedTuple):
    """A complex value: real and imaginary part, of the same shape and dtype."""

    re: Part
    im: Part


class Refused(Exception):
    """Arguments that a rule does not take; the text says why."""


@dataclass(frozen=True)
class Call:
    """The call that a rule replaces: its operator, and the (fake) values of its result and of its first operand."""

    target: Any
    val: Any
    operand: Any = None

    @property
    def real(self) -> torch.dtype:
        """The dtype of the parts of the result; of several results, of the first."""
        first = self.val[0] if isinstance(self.val, (tuple, list)) else self.val
        return first.dtype.to_real() if first.dtype.is_complex else first.dtype


Rule = Callable[..., Any]
#: operator, with or without its overload ("mul", "where.self") -> rule(call, *args, **kwargs)
RULES: dict[str, Rule] = {}


def rule(names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operators of aten, separated by blanks."""

    def add(function: Rule) -> Rule:
        for name in names.split():
            if name in RULES:
                raise ValueError(f"{name} has two rules")
            RULES[name] = function
        return function

    return add


def rule_of(node: Any) -> Rule | None:
    """The rule of a node's operator, by overload first."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    return RULES.get(f"{target._opname}.{target._overloadname}") or RULES.get(target._opname)


def is_complex(val: Any) -> bool:
    """Whether a value (of a node's meta) is a complex tensor, or several tensors with one among them."""
    if isinstance(val, (tuple, list)):
        return any(is_complex(v) for v in val)
    return isinstance(val, Tensor) and val.dtype.is_complex


def has_rule(node: Any) -> bool:
    """Whether a node works on complex numbers, and a rule takes it whole."""
    values = (n.meta.get("val") for n in (node, *node.all_input_nodes))
    return rule_of(node) is not None and any(is_complex(v) for v in values)


def is_complex_dtype(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value.is_complex


def parts(value: Any, dtype: torch.dtype) -> Complex:
    """An operand's parts in a real dtype: those of a complex tensor, a real tensor and zeros, or two numbers."""
    if isinstance(value, Complex):
        return value if not isinstance(value.re, Tensor) else Complex(cast(value.re, dtype), cast(value.im, dtype))
    if isinstance(value, Tensor):
        real = cast(value, dtype)
        return Complex(real, torch.zeros_like(real))
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return Complex(value, 0.0)
    return Complex(float(value.real), float(value.imag))


def tensors(value: Any, dtype: torch.dtype) -> Complex:
    """As `parts`, with numbers as tensors without dimensions."""
    return Complex(*(p if isinstance(p, Tensor) else torch.full([], p, dtype=dtype) for p in parts(value, dtype)))


def common_dtype(*values: Any) -> torch.dtype:
    """The real dtype in which operands meet, when the result does not say it (comparisons)."""
    found = [v.re if isinstance(v, Complex) else v for v in values]
    dtypes = [v.dtype for v in found if isinstance(v, Tensor)]
    whole = torch.bool
    for dtype in dtypes:
        whole = torch.promote_types(whole, dtype)
    return whole if whole.is_floating_point else torch.get_default_dtype()


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == dtype else x.to(dtype)


def zip_parts(re: Any, im: Any) -> Any:
    """Two results of an operator, for either part, as one complex result; lists and tuples element by element."""
    if isinstance(re, (tuple, list)):
        return tuple(zip_parts(a, b) for a, b in zip(re, im, strict=True))
    return Complex(re, im)
