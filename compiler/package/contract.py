"""What a package's code was compiled for, as a hash that stands in model.so and in the manifest.

The loader compares the two before it loads the code (runtime/src/package/contract.cpp), so that a manifest with other
names, dtypes, ranks, dimensions or sizes than the code has is refused. docs/package-format.md has the form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...runtime.errors import CompileError
from ..build.elf import read_section

__all__ = ["SECTION", "checked_contract", "contract_of"]

SECTION = ".mycc.contract"
_VERSION = 1


def contract_of(
    entry_points: Sequence[Mapping[str, Any]], state: Sequence[Mapping[str, Any]], header: int, data: int
) -> str:
    """The contract of these rows of the manifest ("1:5ab0...").

    Args:
        entry_points, state: of the manifest; what only people read of them does not matter.
        header, data: bytes of the weights' member before its tensor data, and of the data.
    """
    values = [*_entries(entry_points), len(state), *(v for row in state for v in (*_port(row), row.get("offset", -1)))]
    digest = hashlib.sha256()
    for value in (*values, header, data):
        text = str(value).encode()
        digest.update(b"%d:%s," % (len(text), text))
    return f"{_VERSION}:{digest.hexdigest()}"


def _entries(rows: Sequence[Mapping[str, Any]]) -> Iterator[str | int]:
    yield len(rows)
    for row in rows:
        yield row["name"]
        for ports in (row["inputs"], row["outputs"]):
            yield len(ports)
            for port in ports:
                yield from _port(port)
        symbols = row["symbols"]
        yield len(symbols)
        for symbol in symbols:
            yield from (symbol[key] for key in ("name", "min", "max", "input", "dim", "scale", "offset"))
        for key in ("state", "changes", "writes"):
            numbers = row.get(key, ())
            yield len(numbers)
            yield from numbers
        variants = [(i, other["fixed"]) for i, other in enumerate(rows) if other.get("variant_of") == row["name"]]
        yield len(variants)
        for number, fixed in variants:
            yield number
            yield from (fixed.get(symbol["name"], -1) for symbol in symbols)


def _port(row: Mapping[str, Any]) -> Iterator[str | int]:
    yield from (row["name"], row["dtype"], len(row["shape"]), *row["shape"])


def checked_contract(libraries: Mapping[str, bytes], expected: str) -> str | None:
    """The contract that the code of all targets (target -> model.so) was compiled for; None: for none, as code written
    by hand may be.

    Raises:
        CompileError: a library was compiled for something else than `expected`.
    """
    found = {target: read_section(library, SECTION) for target, library in libraries.items()}
    texts = {target: text.rstrip(b"\0").decode() for target, text in found.items() if text is not None}
    wrong = [target for target in libraries if texts and texts.get(target) != expected]
    if wrong:
        raise CompileError(f"the code for {', '.join(wrong)} was compiled for other inputs than the package names")
    return expected if texts else None
