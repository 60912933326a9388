"""The generated sources that a package keeps, by target and kernel, and what each kernel is called with."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from ...runtime.archive import SOURCES, Archive
from ...runtime.errors import LoadError
from ...runtime.tensorfile import parse_header

__all__ = ["Code", "read_code"]

_MODEL = "model.json"
_PROGRAM = "program.cpp"
_LARGEST = 64 << 20  # bytes of a source that are unpacked
_DEFINITION = re.compile(r"^(?:extern \"C\" )?void (\w+)\(([^)]*)\) \{", re.MULTILINE)
_CALL = re.compile(r"trace\(call, (\d+)\);\s+(\w+)\((.*?)\);\n", re.DOTALL)
_RUN = re.compile(r"^void entry(\d+)_run\(.*?^}", re.MULTILINE | re.DOTALL)
_WEIGHT = re.compile(r"\(const [\w ]+ \*\)\(call->weights \+ (\d+)\)")


@dataclass
class Code:
    """Attributes:
    model: text of src/model.json, "" without.
    kernels: (target's folder, symbol) -> (file, text).
    calls: (target's folder, entry point, kernel) -> expression of each argument.
    """

    model: str = ""
    kernels: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    calls: dict[tuple[str, int, int], list[str]] = field(default_factory=dict)
    weights: dict[int, str] = field(default_factory=dict)  # offset in the data -> name
    _shown: dict[tuple[str, str], int] = field(default_factory=dict)

    def show(self, folder: str, symbol: str) -> int | None:
        """The number under which rows() holds a kernel's text; None where the package does not hold it."""
        if (folder, symbol) not in self.kernels:
            return None
        return self._shown.setdefault((folder, symbol), len(self._shown))

    def arguments(self, folder: str, symbol: str, entry: int, kernel: int) -> list[dict[str, str]]:
        """name and value of every argument of a call of a C++ kernel: `w0` is `const w_up_bias`."""
        values = self.calls.get((folder, entry, kernel), [])
        found = _DEFINITION.search(self.kernels.get((folder, symbol), ("", ""))[1])
        if not found or not values:
            return []
        names = [part.split()[-1].lstrip("*") for part in found[2].split(",")]
        pairs = zip(names, values, strict=False)
        return [{"name": name, "value": self._value(value)} for name, value in pairs if name != "host"]

    def _value(self, text: str) -> str:
        if found := _WEIGHT.fullmatch(text):
            return f"weight {self.weights.get(int(found[1]), '+' + found[1])}"
        kind, _, name = text.partition("_")
        return f"{kind} {name}" if kind in ("input", "output", "temp", "state") and name else text

    def rows(self) -> list[dict[str, Any]]:
        """The texts that show() was asked for."""
        return [
            {"target": folder, "symbol": symbol, "file": file, "text": text,
             "language": "python" if file.endswith(".py") else "cpp"}
            for (folder, symbol), (file, text) in ((key, self.kernels[key]) for key in self._shown)
        ]  # fmt: skip


def read_code(archive: Archive) -> Code:
    """Reads the members under src/. Raises LoadError: one of them is damaged."""
    code = Code()
    entries, _, _ = parse_header(archive.read(archive.manifest["weights"]["member"]))
    code.weights = {e.begin: e.name for e in reversed(entries)}
    for name, text in _texts(archive):
        folder, _, file = name.rpartition("/")
        if name == _MODEL:
            code.model = text
        elif file == _PROGRAM:
            code.calls |= {(folder, *key): value for key, value in _calls(text).items()}
        elif file.startswith("kernels_") and file.endswith(".cpp"):
            code.kernels |= {(folder, symbol): (file, block) for symbol, block in _blocks(text)}
        elif file.endswith(".py"):
            code.kernels[folder, file.removesuffix(".py")] = (file, text)
    return code


def _texts(archive: Archive) -> Iterator[tuple[str, str]]:
    """The sources by their names behind src/; packed routines and tables are left out."""
    source = archive.path if archive.path is not None else BytesIO(archive._data)
    try:
        with zipfile.ZipFile(source) as file:
            for info in file.infolist():
                name = info.filename.removeprefix(SOURCES)
                wanted = name == _MODEL or name.endswith((_PROGRAM, ".py")) or "/kernels_" in name
                if info.filename.startswith(SOURCES) and wanted and info.file_size <= _LARGEST:
                    yield name, file.read(info).decode()
    except (OSError, UnicodeDecodeError, zipfile.BadZipFile) as error:
        raise LoadError(f"{archive.label}: the sources are damaged: {error}") from None


def _blocks(unit: str) -> Iterator[tuple[str, str]]:
    """(symbol, text) of every kernel of a C++ unit: from the comment that names its operators to the next one."""
    body = unit.partition("namespace mycc_model {\n")[2] or unit
    body = body.rpartition("\n} // namespace")[0] or body
    block: list[str] = []
    for part in re.split(r"^(?=// )", body, flags=re.MULTILINE):
        block.append(part)
        text = "".join(block)
        names = [found[1] for found in _DEFINITION.finditer(text)]
        if names:
            yield names[-1], text[text.find("// ") :].rstrip() + "\n" if "// " in text else text
            block = []


def _calls(program: str) -> Mapping[tuple[int, int], list[str]]:
    """(entry point, kernel) -> the texts of the arguments, of straight calls behind their trace."""
    found = {}
    for run in _RUN.finditer(program):
        for call in _CALL.finditer(run[0]):
            found[int(run[1]), int(call[1])] = _arguments(call[3])
    return found


def _arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]
