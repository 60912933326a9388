"""Plans as rows of JSON values and as a line of text: what is as it is by default is left out, but for the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any

from ..buffers import Buffer
from ..index import Var
from .kernel import Plan


def plan_row(plan: Plan | None) -> dict[str, Any]:
    """The decisions of a plan by name, as JSON values; loops and buffers by their names, indices as text."""
    return {} if plan is None else _row(plan)


def plan_text(plan: Plan | None) -> str:
    """`vector j4; parallel i3`; "" for a plan without a decision that differs from the default."""
    return "; ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in plan_row(plan).items())


def _row(value: Any) -> dict[str, Any]:
    own = ((f.name, getattr(value, f.name), f) for f in fields(value))
    return {name: _json(x) for name, x, field in own if not _is_default(x, field)}


def _is_default(value: Any, field: Field[Any]) -> bool:
    if isinstance(value, Enum):
        return False
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return bool(type(value) is type(field.default) and value == field.default)


def _json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Var | Buffer):
        return value.name
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list):
        return [_json(x) for x in value]
    if isinstance(value, frozenset | set):
        return sorted(_json(x) for x in value)
    if isinstance(value, Mapping):
        return {str(_json(k)): _json(v) for k, v in value.items()}
    return _row(value) if is_dataclass(value) and type(value).__str__ is object.__str__ else str(value)


def _text(value: Any) -> str:
    if value in (None, []):
        return "-"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return "(" + "; ".join(f"{name.replace('_', ' ')} {_text(x)}" for name, x in value.items()) + ")"
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
