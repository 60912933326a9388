"""`mycc weights`: a package with the weights of a later training. Its code stays, its constants are computed again."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...runtime.archive import MANIFEST, SOURCES, Archive
from ...runtime.errors import InputError
from ...runtime.formats import not_safetensors
from ...runtime.strict_json import decode, encode
from ...runtime.tensorfile import parse_header
from ..model.graph import dtype_name
from ..model.origins import Fixed, FromModel, Made, Origin, decoded, evaluate, leaves
from ..weights.recipes import MEMBER, digest, layout_of
from .archive import PAGE, ArchiveWriter
from .replace import whole_file
from .writer import BLOCK, CERTIFICATE, alignment_of, hashed_blocks

__all__ = ["Replaced", "replace_weights"]

_SHOWN = 5  # names in a message
_KEPT = ("optimizer.", "gradient.")  # what a package that trains saves beside parameters
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Replaced:
    """What was done: the package, how many of the model's tensors have new values, and which stayed."""

    path: Path
    replaced: int
    kept: tuple[str, ...]


def replace_weights(
    package: str | os.PathLike[str],
    weights: str | os.PathLike[str] | Tensors,
    out: str | os.PathLike[str] | None = None,
    *,
    partial: bool = False,
) -> Replaced:
    """Puts other weights into a package for inference, as if it were compiled again with them.

    Args:
        package: the file; its targets, sizes and code stay as they are.
        weights: a safetensors file, or tensors by the names of the model's state_dict(): shapes and dtypes are those
            that the package was compiled with. What an optimizer keeps, in a file that a training package saved, is
            passed over.
        out: the new package; None: it takes the place of the old one, once it is whole.
        partial: tensors that are missing stay as they are.

    The accuracy certificate is left out: it was that of the other weights.

    Raises:
        InputError: a tensor is missing, unknown, or has another shape or dtype; names it. Also where code depends on
            the values of a tensor, or the package does not say how its constants were made.
        CompileError: the file cannot be written; what was there before is unchanged.
    """
    archive = Archive(package)
    archive.check_members()
    archive.check_weights()
    recipe = _recipe(archive)
    given = _read(weights) if isinstance(weights, (str, os.PathLike)) else dict(weights)
    rows = _Rows(recipe["model"])
    chosen = rows.chosen(given, partial)
    made = _tensors(archive, recipe["tensors"], rows, chosen)
    _check_state(archive, rows, chosen)
    path = Path(package if out is None else out)
    _write(archive, made, path)
    kept = tuple(row["names"][0] for i, row in enumerate(recipe["model"]) if i not in chosen and "dtype" in row)
    return Replaced(path, len(chosen), kept)


def _recipe(archive: Archive) -> dict[str, Any]:
    if "training" in archive.manifest:
        raise InputError(
            f"{archive.label} is a package that trains",
            hint="Its parameters are set by t = mycc.load(...); t.load(weights), and saved by t.save(...).",
        )
    if SOURCES + MEMBER not in archive.members:
        raise InputError(
            f"{archive.label} does not say how its constants were made",
            hint="Compile it again with this version, without --set codegen.sources=false.",
        )
    found: dict[str, Any] = decode(_text(archive, SOURCES + MEMBER))
    return found


def _text(archive: Archive, name: str) -> bytes:
    """A member's bytes; those of a source are deflated where that makes them smaller."""
    data = bytes(archive.read(name))
    if zlib.crc32(data) == archive.members[name].crc:
        return data
    return zlib.decompress(data, -zlib.MAX_WBITS)


def _read(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from None
    except Exception as error:  # safetensors has an exception of its own that it does not name
        message, hint = not_safetensors(path, error)
        raise InputError(message, hint=hint) from None


class _Rows:
    """The tensors of the model's state_dict(), each by all its names."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows
        self.place = {name: i for i, row in enumerate(rows) for name in row["names"]}

    def chosen(self, given: Tensors, partial: bool) -> dict[int, torch.Tensor]:
        """The new values by row. Raises InputError for a name, shape or dtype that does not fit."""
        surplus = [n for n in given if n not in self.place and not n.startswith(_KEPT)]
        missing = [r["names"][0] for r in self.rows if "dtype" in r and not any(n in given for n in r["names"])]
        if surplus:
            raise InputError(f"the model has no {_named(surplus)}", hint=f"It has {_named(list(self.place))}.")
        if missing and not partial:
            raise InputError(
                f"the weights lack {_named(missing)}",
                hint="With --partial (partial=True) tensors that are missing stay as they are.",
            )
        found: dict[int, torch.Tensor] = {}
        for name, tensor in given.items():
            if name in self.place and "dtype" in self.rows[self.place[name]]:
                self._add(found, name, tensor)
        if not found:
            raise InputError("the weights have no tensor that the package reads")
        return found

    def _add(self, found: dict[int, torch.Tensor], name: str, tensor: torch.Tensor) -> None:
        row, place = self.rows[self.place[name]], self.place[name]
        tensor = torch.as_tensor(tensor).detach().cpu()
        if list(tensor.shape) != row["shape"]:
            raise InputError(f"'{name}' has the shape {list(tensor.shape)}, where the model has {row['shape']}")
        if dtype_name(tensor.dtype) != row["dtype"]:
            raise InputError(
                f"'{name}' is of {dtype_name(tensor.dtype)}, where the package has {row['dtype']}",
                hint="Convert the weights first, or compile the package again.",
            )
        if "values" in row and digest(tensor) != row["values"]:
            raise InputError(
                f"the code of the package stands on the values that '{name}' had when it was compiled",
                hint="It is a number or a mask that the code says: compile the model again with the new weights.",
            )
        if place in found and not torch.equal(found[place], tensor):
            raise InputError(f"'{name}' is one tensor with {_named(row['names'])}, but has other values here")
        found[place] = tensor.contiguous()


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _check_state(archive: Archive, model: _Rows, chosen: Mapping[int, torch.Tensor]) -> None:
    """A tensor of the state whose first value was zero has no place in the package for another one."""
    for row in archive.manifest.get("state", ()):
        new = chosen.get(model.place.get(row["name"], -1))
        if new is not None and "offset" not in row and bool(new.any()):
            raise InputError(
                f"'{row['name']}' was zero when the package was compiled, which has no place for another first value",
                hint="Compile the model again with these weights.",
            )


def _tensors(
    archive: Archive, rows: Sequence[Mapping[str, Any]], model: _Rows, chosen: Mapping[int, torch.Tensor]
) -> dict[str, memoryview]:
    """The bytes of the constants that change, by name, dense and without padding."""
    known: dict[Origin, torch.Tensor] = {}
    found: dict[str, memoryview] = {}
    for row in rows:
        origin = None if row["origin"] is None else decoded(row["origin"])
        if isinstance(origin, Fixed):
            continue
        if origin is None:
            raise InputError(
                f"the package does not say how its constant '{row['name']}' was made",
                hint="Weights that mycc or another library has quantised cannot be replaced: compile the model again.",
            )
        read = leaves(origin)
        new = {leaf: chosen[model.place[leaf.names[0]]] for leaf in read if model.place[leaf.names[0]] in chosen}
        if not new:
            continue
        lacking = [leaf.names[0] for leaf in read if leaf not in new]
        if lacking:
            both = _named([leaf.names[0] for leaf in new])
            raise InputError(f"{both} and {_named(lacking)} are one constant of the package: give both")
        assert isinstance(origin, (FromModel, Made))
        packed = layout_of(row["layout"]).pack(evaluate(origin, new, known))
        raw = packed.contiguous().view(torch.uint8) if packed.numel() else torch.empty(0, dtype=torch.uint8)
        found[row["name"]] = memoryview(raw.numpy())  # type: ignore[arg-type]
    return found


def _pieces(old: memoryview, made: Mapping[str, memoryview]) -> Iterator[memoryview]:
    """The weights' member with the new constants in the places of the old ones."""
    entries, _, start = parse_header(old)
    yield old[:start]
    for entry in entries:
        size = entry.end - entry.begin
        data = made.get(entry.name, old[start + entry.begin : start + entry.end])
        if not 0 <= size - len(data) < 64:
            raise InputError(f"the constant '{entry.name}' has {len(data)} bytes now, not {size}")
        yield data
        if len(data) < size:
            yield memoryview(bytes(size - len(data)))


def _write(archive: Archive, made: Mapping[str, memoryview], path: Path) -> None:
    """The package with other weights, without its certificate."""
    manifest = dict(archive.manifest)
    member = manifest["weights"]["member"]
    with whole_file(path) as file:
        writer = ArchiveWriter(file)
        blocks: list[str] = []
        for name in archive.members:
            if name in (MANIFEST, CERTIFICATE):
                continue
            data = archive.read(name)
            if name == member:
                with hashed_blocks(_pieces(data, made), blocks) as pieces:
                    writer.add(name, len(data), pieces, PAGE)
                continue
            text = _text(archive, name) if name.startswith(SOURCES) else None
            writer.add(name, len(data), [data], alignment_of(name), text)
        manifest["weights"] = {**manifest["weights"], "block": BLOCK, "sha256": blocks}
        manifest["members"] = {name: row for name, row in manifest["members"].items() if name != CERTIFICATE}
        manifest["check"] = {}
        manifest["directory"] = hashlib.sha256(writer.listing()).hexdigest()
        text = encode(manifest, separators=(",", ":")).encode()
        writer.add(MANIFEST, len(text), [text])
        writer.close(f"mycc:1:{hashlib.sha256(text).hexdigest()}".encode())
