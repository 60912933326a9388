"""Argument and result structures: from nested Python values to a flat list of tensors and back.

A structure is described by the TREE of the manifest (docs/package-format.md). Both directions are planned once, when
the package is loaded, so that a call with plain tensors costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from .errors import InputError

__all__ = ["Arguments", "Record", "plan_output"]

Tree = Any  # "*" or a dict with one of the keys of the module's docstring: parsed JSON
Flatten = Callable[[Any, str, list[Any]], None]
Build = Callable[[Iterator[Any]], Any]

_NO_TENSORS = {type(None), bool, int, float, complex}


class Record:
    """A result with named fields, as a model's own output class had them.

    Fields are read as attributes (`out.logits`), by key (`out["logits"]`) or by position (`out[0]`); `out.keys()`,
    `out.items()`, `dict(out)` and `"logits" in out` work as for a dictionary. Read-only.
    """

    __slots__ = ("_fields",)
    _class_name = "Record"

    def __init__(self, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            fields = ", ".join(self._fields)
            raise AttributeError(f"{self._class_name} has no field '{name}'; it has {fields}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self._class_name} is read-only")

    def __getitem__(self, key: str | int | slice) -> Any:
        return self._fields[key] if isinstance(key, str) else self.to_tuple()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self._fields]

    def __reduce__(self) -> tuple[object, ...]:
        return _make_record, (self._class_name, self._fields)

    def keys(self) -> Any:
        return self._fields.keys()

    def values(self) -> Any:
        return self._fields.values()

    def items(self) -> Any:
        return self._fields.items()

    def to_tuple(self) -> tuple[Any, ...]:
        """The values of all fields, in order."""
        return tuple(self._fields.values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields.items())
        return f"{self._class_name}({fields})"


class Arguments:
    """The arguments of an entry point: flattens `(*args, **kwargs)` to tensors in the order of the inputs.

    Attributes:
        plain: number of positional tensors of a call that needs no flattening; -1 when it always does.
    """

    def __init__(self, tree: Tree, input_names: Sequence[str], entry: str) -> None:
        positional, keywords = tree["tuple"]
        self._entry = entry
        names = iter(input_names)
        children = positional["tuple"]
        labels = positional.get("names") or [f"argument {i + 1}" for i in range(len(children))]
        ordered = [_parameter(child, label, names) for child, label in zip(children, labels, strict=True)]
        ordered += [_parameter(child, key, names, key) for key, child in keywords["dict"]]
        self._parameters = ordered
        self._by_name = {parameter.name: parameter for parameter in ordered}
        self.plain = len(ordered) if all(parameter.leaf for parameter in ordered) else -1

    def flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call, in the order of the entry point's inputs.

        As for a Python function, a parameter may be given by position or by its name.

        Raises:
            InputError: arguments are missing, unknown, given twice, of another structure, or a constant differs.
        """
        if not args and len(kwargs) == self.plain:  # tensors by name, the way of many models: no second look at them
            try:
                return [kwargs[name] for name in self._by_name]
            except KeyError:
                pass  # told apart below
        parameters = self._parameters
        if len(args) > len(parameters):
            raise self._error(f"takes {self._count()} but {len(args)} were given")
        values = dict(zip((parameter.name for parameter in parameters), args, strict=False))
        for name, value in kwargs.items():
            if name not in self._by_name:
                raise self._error(f"has no argument '{name}'")
            if name in values:
                raise self._error(f"got argument '{name}' twice, by position and by name")
            values[name] = value
        missing = [f"'{parameter.name}'" for parameter in parameters if parameter.name not in values]
        if missing:
            raise self._error(f"misses {'argument' if len(missing) == 1 else 'arguments'} {', '.join(missing)}")
        leaves: list[Any] = []
        for parameter in parameters:
            parameter.flatten(values[parameter.name], parameter.name, leaves)
        return leaves

    def has(self, name: str) -> bool:
        """Whether a parameter has this name."""
        return name in self._by_name

    def _count(self) -> str:
        count = len(self._parameters)
        return "1 argument" if count == 1 else f"{count} arguments"

    def _error(self, problem: str) -> InputError:
        names = ", ".join(parameter.name for parameter in self._parameters)
        return InputError(f"{self._entry}() {problem}", hint=f"Its arguments are: {names or 'none'}.")


class _Parameter:
    __slots__ = ("flatten", "leaf", "name")

    def __init__(self, name: str, leaf: bool, flatten: Flatten) -> None:
        self.name = name
        self.leaf = leaf
        self.flatten = flatten


def _parameter(tree: Tree, label: str, names: Iterator[str], key: str | None = None) -> _Parameter:
    """A parameter and its share of the input names; a positional tensor is known by its input's name."""
    leaves = [next(names) for _ in range(_count_leaves(tree))]
    leaf = tree == "*"
    return _Parameter(key or (leaves[0] if leaf else label), leaf, _flattener(tree))


def _count_leaves(tree: Tree) -> int:
    return 1 if tree == "*" else sum(_count_leaves(child) for _, child in _children(tree))


def _children(tree: Tree) -> list[tuple[Any, Tree]]:
    if "fields" in tree:
        return [(name, child) for name, child in tree["fields"]]
    if "dict" in tree:
        return [(key, child) for key, child in tree["dict"]]
    return list(enumerate(tree.get("tuple", tree.get("list", ()))))


def _flattener(tree: Tree) -> Flatten:
    if tree == "*":
        return _flatten_leaf
    if "none" in tree:
        return _flatten_constant(None)
    if "const" in tree:
        return _flatten_constant(tree["const"])
    if "text" in tree:
        return _flatten_text(tree["text"])
    if "real" in tree:
        return _flatten_text(tree["real"])
    children = [(key, _flattener(child)) for key, child in _children(tree)]
    if "dict" in tree:
        return _flatten_mapping(children)
    if "object" in tree:
        return _flatten_object(children, tree["object"])
    return _flatten_sequence(children, tree.get("namedtuple") or ("tuple" if "tuple" in tree else "list"))


def _flatten_leaf(value: Any, path: str, leaves: list[Any]) -> None:
    if type(value) in _NO_TENSORS or isinstance(value, str | Mapping | tuple | list):
        raise InputError(f"argument '{path}' has to be a tensor, not {_describe(value)}")
    leaves.append(value)


def _flatten_constant(constant: Any) -> Flatten:
    def flatten(value: Any, path: str, leaves: list[Any]) -> None:
        if type(value) is not type(constant) or value != constant:
            raise _other_constant(path, repr(constant), value)

    return flatten


def _flatten_text(text: str) -> Flatten:
    """A member of an Enum, a dtype, a device or a float that is not finite; or its text."""

    def flatten(value: Any, path: str, leaves: list[Any]) -> None:
        name = getattr(value, "name", None)
        given = f"{type(value).__name__}.{name}" if isinstance(name, str) else str(value)
        if text not in (given, str(value)):
            raise _other_constant(path, text, value)

    return flatten


def _other_constant(path: str, constant: str, value: Any) -> InputError:
    return InputError(
        f"argument '{path}' was compiled as the constant {constant}, but is {_describe(value)}",
        hint="Pass the same value, or compile the model again with the other one.",
    )


def _flatten_sequence(children: list[tuple[Any, Flatten]], kind: str) -> Flatten:
    def flatten(value: Any, path: str, leaves: list[Any]) -> None:
        if not isinstance(value, tuple | list):
            raise InputError(f"argument '{path}' has to be a {kind} of {len(children)}, not {_describe(value)}")
        if len(value) != len(children):
            raise InputError(f"argument '{path}' has to have {len(children)} elements, but has {len(value)}")
        for (index, child), element in zip(children, value, strict=True):
            name = index if isinstance(index, int) else repr(index)
            child(element, f"{path}[{name}]", leaves)

    return flatten


def _flatten_mapping(children: list[tuple[Any, Flatten]]) -> Flatten:
    keys = [key for key, _ in children]

    def flatten(value: Any, path: str, leaves: list[Any]) -> None:
        if not isinstance(value, Mapping):
            raise InputError(f"argument '{path}' has to be a dict with {_key_list(keys)}, not {_describe(value)}")
        if value.keys() != set(keys):
            raise InputError(f"argument '{path}' has to have {_key_list(keys)}, but has {_key_list(list(value))}")
        for key, child in children:
            child(value[key], f"{path}[{key!r}]", leaves)

    return flatten


#: fields of transformers' DynamicCache as it is exported -> where its layers keep them
_OF_CACHES = {"key_cache": "keys", "value_cache": "values"}


def _flatten_object(children: list[tuple[Any, Flatten]], class_name: str) -> Flatten:
    def flatten(value: Any, path: str, leaves: list[Any]) -> None:
        for name, child in children:
            if isinstance(value, Mapping | Record) and name in value:
                element = value[name]
            elif hasattr(value, name):
                element = getattr(value, name)
            elif name in _OF_CACHES and hasattr(value, "layers"):
                element = [getattr(layer, _OF_CACHES[name]) for layer in value.layers]
            else:
                raise InputError(f"argument '{path}' has to be like {class_name} with a field '{name}'")
            child(element, f"{path}.{name}", leaves)

    return flatten


def _key_list(keys: list[Any]) -> str:
    return f"keys {', '.join(map(repr, keys))}" if keys else "no keys"


def _describe(value: Any) -> str:
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    return f"a {type(value).__name__}"


def plan_output(tree: Tree) -> Callable[[list[Any]], Any]:
    """The function that builds a result of structure `tree` from the flat list of output tensors."""
    if tree == "*":
        return itemgetter(0)
    if "tuple" in tree and all(child == "*" for child in tree["tuple"]):
        return tuple
    if "list" in tree and all(child == "*" for child in tree["list"]):
        return list
    build = _builder(tree)
    return lambda tensors: build(iter(tensors))


def _builder(tree: Tree) -> Build:
    if tree == "*":
        return next
    if "scalar" in tree:
        number = {"int": int, "float": float, "bool": bool}[tree["scalar"]]
        return lambda tensors: number(next(tensors))
    if "none" in tree:
        return lambda tensors: None
    if "const" in tree:
        constant = tree["const"]
        return lambda tensors: constant
    if "text" in tree:
        return lambda tensors: tree["text"]
    if "real" in tree:
        return lambda tensors: float(tree["real"])
    children = _children(tree)
    builds = [_builder(child) for _, child in children]
    if "namedtuple" in tree:
        make = _namedtuple_class(tree["namedtuple"], [name for name, _ in children])._make
        return lambda tensors: make([build(tensors) for build in builds])
    if "tuple" in tree:
        return lambda tensors: tuple([build(tensors) for build in builds])
    if "list" in tree:
        return lambda tensors: [build(tensors) for build in builds]
    keyed = [(key, build) for (key, _), build in zip(children, builds, strict=True)]
    if "dict" in tree:
        return lambda tensors: {key: build(tensors) for key, build in keyed}
    record = _record_class(tree["object"])
    return lambda tensors: record({key: build(tensors) for key, build in keyed})


def _namedtuple_class(name: str, fields: list[str]) -> Any:
    from collections import namedtuple
    from keyword import iskeyword

    short = name.rpartition(".")[2]
    return namedtuple(short if short.isidentifier() and not iskeyword(short) else "Result", fields, rename=True)


def _record_class(class_name: str) -> type[Record]:
    name = class_name.rpartition(".")[2]
    return type(name, (Record,), {"__slots__": (), "_class_name": name})


def _make_record(class_name: str, fields: dict[str, Any]) -> Record:
    return _record_class(class_name)(fields)
