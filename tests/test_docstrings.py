"""What another folder imports says what it does: functions, classes, and the classes' public methods and properties."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def files() -> dict[str, tuple[Path, ast.Module]]:
    """Every module of mycc, by its name from the top."""
    paths = [p for part in ("compiler", "runtime", "commands") for p in (ROOT / part).rglob("*.py")]
    found = {}
    for path in [*paths, *ROOT.glob("*.py")]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = (path, ast.parse(path.read_text()))
    return found


def imported(tree: ast.Module, module: str, path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of what a file imports of others; in functions too."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + ([node.module] if node.module else [])
            yield from ((".".join(base), alias.name) for alias in node.names)


@cache
def interfaces() -> set[tuple[str, str]]:
    """(module, name) of what files of another folder import."""
    known = files()
    return {
        (base, name)
        for module, (path, tree) in known.items()
        for base, name in imported(tree, module, path)
        if base in known and known[base][0].parent != path.parent
    }


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """All classes by their names."""
    found: dict[str, list[ast.ClassDef]] = {}
    for _, tree in files().values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Public ones, properties too."""
    yield from (m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_"))


def inherits(node: ast.ClassDef, name: str) -> bool:
    """Whether a base class says what the method does, or is none of mycc's."""
    for base in node.bases:
        own = classes().get(ast.unparse(base).rpartition(".")[2].partition("[")[0])
        if own is None:
            if ast.unparse(base) not in ("NamedTuple", "Protocol", "ABC"):
                return True
            continue
        for other in own:
            if any(m.name == name and ast.get_docstring(m) for m in methods(other)) or inherits(other, name):
                return True
    return False


def missing() -> tuple[list[str], list[str]]:
    """Functions and classes without a docstring, and methods."""
    wanted, plain, owned = interfaces(), [], []
    for module, (path, tree) in files().items():
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or (module, node.name) not in wanted:
                continue
            where = f"{path.relative_to(ROOT)}: {node.name}"
            if not ast.get_docstring(node):
                plain.append(where)
            if isinstance(node, ast.ClassDef):
                setters = (f"{m.name}.setter" for m in methods(node))
                seen = set(setters)
                for method in methods(node):
                    if any(ast.unparse(d) in seen for d in method.decorator_list):
                        continue
                    if not ast.get_docstring(method) and not inherits(node, method.name):
                        owned.append(f"{where}.{method.name}")
    return plain, owned


def test_functions_and_classes_have_docstrings() -> None:
    assert ("compiler.ir.index", "as_index") in interfaces()  # else nothing would be looked at
    assert missing()[0] == []


def test_methods_have_docstrings() -> None:
    assert missing()[1] == []
