"""The rooms of compiler/README.md: imports go one way, from the bottom of its table to the top."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

COMPILER = Path(__file__).parents[1] / "compiler"
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


def imports(module: str, path: Path) -> Iterator[str]:
    """The modules of the compiler that a file imports, inside of functions too."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}".startswith(PREFIX))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(PREFIX))


def test_every_module_has_a_room() -> None:
    found = {room_of(m) for m in modules() if m not in ("mycc.compiler.", "mycc.compiler.tune")}
    assert found == set(rooms())


def test_imports_go_one_way() -> None:
    order = {name: i for i, name in enumerate(rooms())}
    against = [
        f"{module} imports {other}"
        for module, path in modules().items()
        if room_of(module) in order
        for other in imports(module, path)
        if order[room_of(other)] > order[room_of(module)]
    ]
    assert not against
