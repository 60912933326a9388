"""Python structures (pytrees) as the manifest writes them, and names for their leaves."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...runtime.errors import CompileError

__all__ = ["LEAF", "constant", "leaf_names", "structure"]

LEAF = "*"


def constant(value: object, what: str) -> object:
    """The tree of a Python value that is part of the structure, not of the data."""
    if value is None:
        return {"none": None}
    if isinstance(value, Enum):
        return {"text": f"{type(value).__name__}.{value.name}"}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"text": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"real": str(value)}  # which JSON has no number for
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return {"const": kind(value)}
    raise CompileError(
        f"{what} is a {type(value).__name__}, which a package cannot hold",
        hint="Use tensors, int, float, bool, str, None, members of an Enum or dtypes, in tuples, lists and dicts.",
    )


def structure(spec: pytree.TreeSpec, leaf: Callable[[], object]) -> object:
    """The manifest's tree of a torch TreeSpec; leaf() gives the tree of the next leaf, in order."""
    if spec.is_leaf():
        return leaf()
    children = [structure(child, leaf) for child in _children(spec)]
    kind = spec.type
    if kind in (tuple, torch.Size):
        return {"tuple": children}
    if kind is list:
        return {"list": children}
    if kind in (dict, OrderedDict, defaultdict):
        keys = spec.context[1] if kind is defaultdict else spec.context
        return {"dict": [[_key(key), child] for key, child in zip(keys, children, strict=True)]}
    if kind in (pytree.namedtuple, pytree.structseq):
        cls = spec.context
        return {"namedtuple": cls.__name__, "fields": _pairs(list(cls._fields), children)}
    if pytree.is_structseq_class(kind):  # torch.return_types
        return {"namedtuple": kind.__name__, "fields": _pairs(list(kind.__match_args__), children)}
    fields = _object_fields(spec.context, children)
    if dataclasses.is_dataclass(kind):  # their own order: torch has those that are None apart
        order = {f.name: i for i, f in enumerate(dataclasses.fields(kind))}
        fields.sort(key=lambda field: order.get(str(field[0]), len(order)))
    return {"object": f"{kind.__module__}.{kind.__qualname__}", "fields": fields}


def _children(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    return spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs


def _pairs(names: list[str], children: list[object]) -> list[list[object]]:
    return [[name, child] for name, child in zip(names, children, strict=True)]


def _object_fields(context: Any, children: list[object]) -> list[list[object]]:
    """Fields of a registered class: its context is [names], [[names], [names that are None]] for dataclasses, or names
    and something else that is no part of the data."""
    if _is_names(context) and len(context) == len(children):
        return _pairs(list(context), children)
    pair = isinstance(context, (list, tuple)) and len(context) == 2 and all(_is_names(c) for c in context)
    if pair and len(context[0]) == len(children):
        return _pairs(list(context[0]), children) + [[name, {"none": None}] for name in context[1]]
    if isinstance(context, (list, tuple)) and context and _is_names(context[0]) and len(context[0]) == len(children):
        return _pairs(list(context[0]), children)
    return _pairs([str(i) for i in range(len(children))], children)


def _is_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)


def _key(key: object) -> object:
    if isinstance(key, (str, int, bool)):
        return key
    raise CompileError(f"a dict of the model's inputs or outputs has the key {key!r}; only str and int keys are kept")


def leaf_names(tree: Any, base: str) -> Iterator[str]:
    """A name per tensor leaf of a tree, all different: fields and keys as they are, positions as base_0, base_1, ..."""
    seen: set[str] = set()
    for path in _leaf_paths(tree):
        words = path if path and not path[0].isdigit() else (base, *path)
        name = re.sub(r"\W", "_", "_".join(words)) or base  # a key may be ""
        unique, n = name, 1
        while unique in seen:
            unique, n = f"{name}_{n}", n + 1
        seen.add(unique)
        yield unique


def _leaf_paths(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if tree == LEAF or "scalar" in tree:
        yield path
        return
    for name, child in tree_children(tree):
        yield from _leaf_paths(child, (*path, name))


def tree_children(tree: Any) -> list[tuple[str, Any]]:
    """The named children of a tree of the manifest, in order."""
    if "tuple" in tree or "list" in tree:
        return [(str(i), child) for i, child in enumerate(tree.get("tuple", tree.get("list")))]
    if "dict" in tree:
        return [(str(key), child) for key, child in tree["dict"]]
    return [(name, child) for name, child in tree.get("fields", [])]
