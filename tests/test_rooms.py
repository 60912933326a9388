"""The rooms of compiler/README.md: imports go one way, from the bottom of its table to the top."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPILER = ROOT / "compiler"
PREFIX = "mycc.compiler."


def rooms() -> list[str]:
    """The rooms of the table, in its order."""
    text = (COMPILER / "README.md").read_text()
    return re.findall(r"^\| `([a-z_.]+)` \|", text, re.MULTILINE)


def modules() -> dict[str, Path]:
    """Every module of the compiler."""
    found = {}
    for path in COMPILER.rglob("*.py"):
        parts = path.relative_to(COMPILER).with_suffix("").parts
        found[PREFIX + ".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    """The room that a module stands in; tune/ has two."""
    parts = module.removeprefix(PREFIX).split(".")
    return ".".join(parts[:2]) if parts[0] == "tune" else parts[0]


@cache
def import_statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """Of a file's text, inside of functions too."""
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def imports(module: str, path: Path) -> Iterator[str]:
    """The modules of the compiler that a file imports, inside of functions too."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in import_statements(path.read_text()):
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}".startswith(PREFIX))
        else:
            yield from (alias.name for alias in node.names if alias.name.startswith(PREFIX))


def test_every_module_has_a_room() -> None:
    found = {room_of(m) for m in modules() if m not in ("mycc.compiler.", "mycc.compiler.tune")}
    assert found == set(rooms())


def against_the_order(files: Mapping[str, Path]) -> list[str]:
    """Imports of a room that stands below in the table."""
    order = {name: i for i, name in enumerate(rooms())}
    return [
        f"{module} imports {other}"
        for module, path in files.items()
        if room_of(module) in order
        for other in imports(module, path)
        if order[room_of(other)] > order[room_of(module)]
    ]


def test_imports_go_one_way() -> None:
    assert not against_the_order(modules())


@pytest.mark.parametrize(("room", "below"), [*pairwise(rooms()), ("ir", "codegen"), ("capture", "graph")])
def test_a_new_file_in_a_wrong_room_is_found(room: str, below: str, tmp_path: Path) -> None:
    for line in (
        f"from mycc.compiler.{below} import x",
        f"import mycc.compiler.{below}.new",
        f"from ..{below} import x",
    ):
        if line.startswith("from ..") and "." in room:
            continue
        (tmp_path / "new.py").write_text(f"def f():\n    {line}\n")
        found = against_the_order({f"{PREFIX}{room}.new": tmp_path / "new.py"})
        assert len(found) == 1, line
        assert found[0].startswith(f"{PREFIX}{room}.new imports {PREFIX}{below}")


def outside(path: Path) -> set[str]:
    """The top-level parts of mycc that a file of another part imports."""
    depth = len(path.relative_to(ROOT).parts)
    found = set()
    for node in import_statements(path.read_text()):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("mycc."):
            found.add(str(node.module).split(".")[1])
    return found


def test_the_runtime_and_the_arguments_stand_on_nothing_above() -> None:
    loading = {path for path in (ROOT / "runtime").rglob("*.py") if "standalone" not in path.parts}
    above = {str(p.relative_to(ROOT)): outside(p) & {"compiler", "commands", "cli"} for p in loading}
    assert {path: found for path, found in above.items() if found} == {}
    assert not outside(ROOT / "arguments.py")
    assert not any({"commands", "cli"} & outside(path) for path in COMPILER.rglob("*.py"))
    assert "compiler" in outside(ROOT / "commands/compile.py")
