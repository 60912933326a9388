"""manifest.json: the form of the document as tables, and what its fields mean together.

src/schema.cpp and src/manifest.cpp hold the same for the native loader: both take and refuse the same
manifests. The fields are those of docs/package-format.md; others are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .strict_json import INT64

__all__ = ["FORMAT_VERSION", "check_manifest"]

FORMAT_VERSION = 1

_MAX_TENSORS, _MAX_ENTRIES, _MAX_SYMBOLS, _MAX_RANK = 4096, 4096, 1024, 16
_LARGEST_STEP = 1 << 48  # of a symbol's scale and offset
_DATA_ALIGNMENT = 64
#: dtype -> bytes of an element
_DTYPES = {
    "bool": 1, "u8": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "c64": 8,
    "c128": 16,
}  # fmt: skip


# -- the form ---------------------------------------------------------------------------------------------------------

Test = Callable[[Any], bool]
Type = Any  # a Test, a List, a Map, or a dict: the fields of a record, those that may be missing with a "?"


class List(NamedTuple):
    of: Type
    least: int = 0
    most: int = 1 << 32


class Map(NamedTuple):
    of: Type


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_natural(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_size(value: Any) -> bool:
    return value is None or _is_natural(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_setting(value: Any) -> bool:
    """A number, or one for each of several groups."""
    return all(map(_is_number, value)) if isinstance(value, list) else _is_number(value)


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _is_dimension(value: Any) -> bool:
    return _is_natural(value) or _is_name(value)


def _is_formula(value: Any) -> bool:
    return _is_whole(value) or _is_name(value)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value in _DTYPES


def _is_version(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"([0-9]+(\.[0-9]+)*)?", value) is not None


def _is_tree(value: Any) -> bool:
    return isinstance(value, str | dict)


def _is_any(value: Any) -> bool:
    return True


_PORT = {"name": _is_name, "dtype": _is_dtype, "shape": List(_is_dimension, 0, _MAX_RANK)}
_STATE = {"name": _is_name, "dtype": _is_dtype, "shape": List(_is_natural, 0, _MAX_RANK), "offset?": _is_natural}
_SYMBOL = {
    "name": _is_name, "min": _is_natural, "max": _is_natural, "input": _is_natural, "dim": _is_natural,
    "scale": _is_natural, "offset": _is_whole,
}  # fmt: skip
_COMPUTED = {"name": _is_name, "min": _is_size, "max": _is_size, "where?": _is_text}
_KERNEL = {
    "name": _is_name, "kind": _is_text, "ops": List(_is_text), "sources": List(_is_text), "key?": _is_text,
    "flops?": _is_formula, "bytes?": _is_formula, "writes?": _is_formula, "weights?": _is_formula,
    "buffers?": List(_is_text),
}  # fmt: skip
_LAUNCH = {
    **_KERNEL, "node": _is_natural, "grid": List(_is_formula), "threads": _is_natural, "shared": _is_natural,
    "registers": _is_natural, "spills": _is_natural, "accesses": Map(_is_natural),
}  # fmt: skip
_FUSION = {"producer": _is_text, "consumer": _is_text, "done": _is_flag, "reason?": _is_text}
_MEMORY = {"buffers?": _is_natural, "arena?": _is_natural, "live?": _is_natural, "dynamic?": _is_flag}
_SLOTS = List(_is_natural, 0, _MAX_TENSORS)
_ENTRY = {
    "name": _is_name, "inputs": List(_PORT, 0, _MAX_TENSORS), "outputs": List(_PORT, 0, _MAX_TENSORS),
    "symbols": List(_SYMBOL, 0, _MAX_SYMBOLS), "computed?": List(_COMPUTED, 0, _MAX_SYMBOLS), "variant_of?": _is_name,
    "fixed?": Map(_is_natural), "state?": _SLOTS, "changes?": _SLOTS, "writes?": _SLOTS, "in_tree": _is_tree,
    "out_tree": _is_tree, "kernels": List(_KERNEL), "launches?": Map(List(_LAUNCH)), "fusions": List(_FUSION),
    "memory": _MEMORY,
}  # fmt: skip
_TARGET = {
    "target": _is_name, "isa": _is_name, "library": _is_name, "loader": _is_text, "glibc": _is_version,
    "family?": _is_text, "arch?": _is_text, "images?": _is_text, "chip?": _is_name,
    "roof?": {"sms": _is_number, "tflops": _is_number, "tbytes": _is_number},
}  # fmt: skip
_WEIGHTS = {
    "member": _is_name, "size": _is_natural, "data_offset": _is_natural, "block": _is_natural,
    "sha256": List(_is_name), "device?": List(_is_natural, 2, 2),
}  # fmt: skip
_CHECK = {"error?": List(_is_number), "eager?": List(_is_number), "shapes?": _is_any, "certificate?": _is_name}
_TUNING = {"machine": Map(_is_scalar), "threads": _is_natural, "targets": Map(Map(Map(_is_scalar)))}
_TRAINING = {
    "optimizer": _is_name, "hyper": Map(_is_setting), "groups": _is_natural,
    "parameters": List({"name": _is_name, "group": _is_natural}, 1, _MAX_TENSORS), "aliases?": Map(_is_name),
    "check_finite?": _is_flag, "memory_budget?": _is_number,
}  # fmt: skip
_MANIFEST = {
    "format": _is_whole, "abi": _is_whole, "name": _is_name, "versions": Map(_is_text), "threads?": _is_natural,
    "launch?": _is_name, "entry_points": List(_ENTRY, 1, _MAX_ENTRIES), "state?": List(_STATE, 0, _MAX_TENSORS),
    "targets": List(_TARGET, 1, _MAX_ENTRIES), "python": Map(_is_text),
    "members": Map({"size": _is_natural, "sha256": _is_name}), "weights": _WEIGHTS, "contract?": _is_name,
    "directory?": _is_name, "check": _CHECK, "tuning?": _TUNING, "training?": _TRAINING,
}  # fmt: skip


class Record(NamedTuple):
    """fields: key, type, whether it has to be there."""

    fields: tuple[tuple[str, Type, bool], ...]


def _compiled(form: Type) -> Type:
    """The form with records in place of dicts."""
    if isinstance(form, List):
        return form._replace(of=_compiled(form.of))
    if isinstance(form, Map):
        return Map(_compiled(form.of))
    if isinstance(form, dict):
        return Record(tuple((key.removesuffix("?"), _compiled(of), not key.endswith("?")) for key, of in form.items()))
    return form


class _Misfit(ValueError):
    """A value that has not the form. Its place is put together on the error's way out."""

    def __init__(self, what: str, *place: str | int) -> None:
        super().__init__(what)
        self.what = what
        self.place = list(place)

    def __str__(self) -> str:
        text = ""
        for step in reversed(self.place):
            text += f"[{step}]" if isinstance(step, int) else f"{'.' * bool(text)}{step[:64]}"
        return f"{text or 'it'} {self.what}"


def _check_form(value: Any, form: Type) -> None:
    """form: a List, a Map or a Record."""
    if isinstance(form, List):
        if not isinstance(value, list):
            raise _Misfit("is not a list")
        if not form.least <= len(value) <= form.most:
            raise _Misfit(f"has too {'few' if len(value) < form.least else 'many'} elements")
        for index, child in enumerate(value):
            _check_child(index, child, form.of)
    elif not isinstance(value, dict):
        raise _Misfit("is not an object")
    elif isinstance(form, Map):
        for key, child in value.items():
            _check_child(key, child, form.of)
    else:
        _check_fields(value, form)


def _check_fields(value: dict[str, Any], form: Record) -> None:
    for key, of, needed in form.fields:
        if key in value:
            _check_child(key, value[key], of)
        elif needed:
            raise _Misfit("is missing", key)


def _check_child(key: str | int, child: Any, form: Type) -> None:
    if callable(form):
        if not form(child):
            raise _Misfit("is not what it has to be", key)
        return
    try:
        _check_form(child, form)
    except _Misfit as error:
        error.place.append(key)
        raise


_FORM = _compiled(_MANIFEST)


# -- structures of arguments and results ------------------------------------------------------------------------------

_TAGS = frozenset(("tuple", "list", "dict", "namedtuple", "object", "scalar", "none", "const", "text", "real"))
_WORDS = {"scalar": ("int", "float", "bool"), "real": ("inf", "-inf", "nan")}


def _tensors(tree: Any, result: bool) -> int:
    """How many tensors a TREE has. Raises ValueError when it is none."""
    if isinstance(tree, str):
        return _hold(tree == "*")
    tag = _tag(tree)
    value = tree[tag]
    if tag in ("tuple", "list"):
        _hold(isinstance(value, list))
        return sum(_tensors(child, result) for child in value)
    if tag == "dict":
        return sum(_tensors(child, result) for _, child in _pairs(value, (str, int)))
    if tag in ("namedtuple", "object"):
        _hold(isinstance(value, str))
        return sum(_tensors(child, result) for _, child in _pairs(tree.get("fields"), (str,)))
    if tag == "scalar":
        return _hold(result and value in _WORDS[tag])
    right = {
        "none": value is None, "const": type(value) in (bool, int, float, str), "text": isinstance(value, str),
        "real": isinstance(value, str) and value in _WORDS["real"],
    }  # fmt: skip
    _hold(right[tag])
    return 0


def _hold(right: bool) -> int:
    if not right:
        raise ValueError
    return 1


def _tag(tree: Any) -> str:
    _hold(isinstance(tree, dict))
    tags = [key for key in tree if key in _TAGS]
    _hold(len(tags) == 1)
    return tags[0]


def _pairs(rows: Any, keys: tuple[type, ...]) -> list[Any]:
    _hold(isinstance(rows, list))
    for row in rows:
        _hold(isinstance(row, list) and len(row) == 2 and isinstance(row[0], keys))
    return list(rows)


def _arguments(tree: Any) -> int:
    """How many tensors (args, kwargs) have, whose structure `tree` has to be."""
    _hold(_tag(tree) == "tuple" and isinstance(tree["tuple"], list) and len(tree["tuple"]) == 2)
    args, kwargs = tree["tuple"]
    _hold(_tag(args) == "tuple" and _tag(kwargs) == "dict")
    names = args.get("names", [])
    _hold(isinstance(names, list) and all(isinstance(name, str) for name in names))
    _hold(isinstance(args["tuple"], list) and len(names) in (0, len(args["tuple"])))
    _pairs(kwargs["dict"], (str,))
    return _tensors(tree, False)


def _fits(count: Callable[[], int], expected: int) -> bool:
    try:
        return count() == expected
    except ValueError:
        return False


# -- what the fields mean together ------------------------------------------------------------------------------------


def check_manifest(manifest: Any, sizes: Mapping[str, int]) -> None:
    """Checks everything that readers of the manifest rely on; hashes are checked elsewhere.

    Args:
        manifest: what `strict_json.decode` gave.
        sizes: the bytes of the archive's members.

    Raises:
        ValueError: with the field that is wrong.
    """
    _check_form(manifest, _FORM)
    entries, state, weights = manifest["entry_points"], manifest.get("state", []), manifest["weights"]
    for index, entry in enumerate(entries):
        for tree, ports, count in (
            ("in_tree", "inputs", lambda: _arguments(entry["in_tree"])),  # noqa: B023 (called at once)
            ("out_tree", "outputs", lambda: _tensors(entry["out_tree"], True)),  # noqa: B023
        ):
            if not _fits(count, len(entry[ports])):
                raise ValueError(f"entry_points[{index}] has an {tree} that does not fit its {ports}")
    if manifest.get("threads", 0) >= 1 << 31:
        raise ValueError("its number of threads makes no sense")
    _check_weights(weights, sizes)
    for row in manifest["targets"]:
        gpu = row["target"].startswith("cuda:")
        if row["library"] not in sizes or (gpu and row.get("images", "") not in sizes):
            raise ValueError("the code of a target is missing")
    for row in state:
        _check_state(row, weights["size"] - weights["data_offset"])
    if "training" in manifest:
        _check_training(manifest["training"])
    names = [entry["name"] for entry in entries]
    if len(set(names)) != len(names):
        raise ValueError("two entry points have one name")
    by_name = dict(zip(names, entries, strict=True))
    for entry in entries:
        _check_entry(entry, len(state))
    for entry in entries:
        if "variant_of" in entry:
            _check_variant(entry, by_name.get(entry["variant_of"]))


def _check_weights(row: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    size, offset, block = row["size"], row["data_offset"], row["block"]
    right = size >= 8 and sizes.get(row["member"]) == size and 8 <= offset <= size and offset % _DATA_ALIGNMENT == 0
    if not right or block == 0 or len(row["sha256"]) != -(-size // block):
        raise ValueError("the weights do not fit their description")


def _check_state(row: Mapping[str, Any], data: int) -> None:
    count = _DTYPES[row["dtype"]]
    for size in row["shape"]:
        count *= size
        if count not in INT64:
            raise ValueError("a tensor of the state is too large")
        if count == 0:
            break
    if "offset" in row and count > data - row["offset"]:
        raise ValueError("the first value of a tensor of the state is missing")


def _check_training(row: Mapping[str, Any]) -> None:
    """Each parameter is of a group; a number has one value, or one for each group. A package that never updates its
    parameters has them as constants, not in its state."""
    groups = row["groups"]
    if not all(parameter["group"] < groups for parameter in row["parameters"]):
        raise ValueError("what is trained makes no sense")
    if any(len(value) != groups for value in row["hyper"].values() if isinstance(value, list)):
        raise ValueError("a number of the optimizer is not there for each group")


def _check_entry(entry: Mapping[str, Any], n_state: int) -> None:
    inputs = entry["inputs"]
    ends = {"state": n_state, "changes": n_state, "writes": len(inputs)}
    if any(number >= end for key, end in ends.items() for number in entry.get(key, ())):
        raise ValueError("what a call changes makes no sense")
    for symbol in entry["symbols"]:
        steps = symbol["scale"] in range(1, _LARGEST_STEP + 1) and abs(symbol["offset"]) <= _LARGEST_STEP
        place = symbol["input"] < len(inputs) and symbol["dim"] < len(inputs[symbol["input"]]["shape"])
        if symbol["max"] < symbol["min"] or not steps or not place:
            raise ValueError("a size symbol makes no sense")


def _check_variant(entry: Mapping[str, Any], general: Mapping[str, Any] | None) -> None:
    """A variant has the symbols of its general entry point that are not fixed, in the same order."""
    same = general is not None and general is not entry and "fixed" in entry
    if general is None or not same or any(len(general[key]) != len(entry[key]) for key in ("inputs", "outputs")):
        raise ValueError("a variant is incomplete")
    free = [symbol["name"] for symbol in general["symbols"] if symbol["name"] not in entry["fixed"]]
    if free != [symbol["name"] for symbol in entry["symbols"]]:
        raise ValueError("a variant has other sizes than its entry point")
