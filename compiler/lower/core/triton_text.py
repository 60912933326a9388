"""The text of a Triton kernel as a module of its own: what it names from outside of itself comes with it.

Functions under @triton.jit are taken over with what they name, numbers and texts by value, Triton's modules by import.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Any

from ....runtime.errors import CompileError

__all__ = ["constant_text", "dtype_name", "kernel_text"]

_DEFAULT = {"triton": "import triton", "tl": "import triton.language as tl"}


def kernel_text(kernel: Any) -> tuple[str, str]:
    """What stands in front of a kernel, and its text from `def` on. The first has no `import triton` and no
    `import triton.language as tl`, which every module has.

    Raises:
        CompileError: it names something that cannot be written down.
    """
    parts: dict[str, str] = {}
    _collect(kernel, parts, str(kernel.__name__))
    return "\n\n\n".join(text for text in parts.values() if text), _source(kernel)


def _source(kernel: Any) -> str:
    text = str(getattr(kernel, "src", None) or getattr(kernel, "_src", "")) or inspect.getsource(kernel)
    text = textwrap.dedent(text)
    return text[text.index("def ") :]


def _collect(kernel: Any, parts: dict[str, str], name: str) -> None:
    """Enters what a function names, each after what it names itself."""
    outside = _outside(kernel)
    for used in _names(_source(kernel)):
        if used in parts or used == name or used not in outside:  # such as range
            continue
        parts[used] = ""
        text = _definition(used, outside[used], parts, name)
        parts.pop(used)
        parts[used] = text


def _definition(name: str, value: Any, parts: dict[str, str], kernel: str) -> str:
    if isinstance(value, types.ModuleType):
        return _module(name, value, kernel)
    if hasattr(value, "arg_names") and hasattr(value, "src"):
        if value.__name__ != name:
            raise _refusal(kernel, f"{name}, another name of {value.__name__}")
        if value.__module__.startswith("triton."):
            return f"from {value.__module__} import {value.__name__}"
        _collect(value, parts, name)
        return f"@triton.jit\n{_source(value)}".rstrip()
    if hasattr(value, "value") and type(value).__name__ == "constexpr":
        return f"{name} = tl.constexpr({constant_text(value.value, kernel)})"
    origin = str(getattr(value, "__module__", ""))
    if origin.startswith("triton.") and getattr(value, "__name__", "") == name:
        return f"from {origin} import {name}"
    return f"{name} = tl.constexpr({constant_text(value, kernel, name)})"


def _module(name: str, value: types.ModuleType, kernel: str) -> str:
    path = value.__name__
    if path.split(".")[0] not in ("triton", "math"):
        raise _refusal(kernel, f"the module {path}")
    text = f"import {path}" if path == name else f"import {path} as {name}"
    return "" if _DEFAULT.get(name) == text else text


def constant_text(value: Any, kernel: str, name: str = "") -> str:
    """A value as Python text in a module with triton.language as tl. kernel, name: what uses it, and as what."""
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float):
        return f'float("{value!r}")' if value != value or value in (float("inf"), float("-inf")) else repr(value)
    if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton."):
        return f"tl.{dtype_name(value)}"
    raise _refusal(kernel, f"{name}, a {type(value).__name__}" if name else f"a {type(value).__name__}")


def dtype_name(value: Any) -> str:
    """The name in triton.language of one of its types."""
    import triton.language as tl

    return next(name for name in dir(tl) if getattr(tl, name) is value or getattr(tl, name) == value)


def _refusal(kernel: str, what: str) -> CompileError:
    return CompileError(
        f"the Triton kernel {kernel} uses {what}, which its text cannot bring along",
        hint="It may use numbers, texts, types of triton.language, other @triton.jit functions and Triton's modules.",
    )


def _outside(kernel: Any) -> Mapping[str, Any]:
    """What names outside of a function mean."""
    function = getattr(kernel, "fn", kernel)
    closed = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    return {**function.__globals__, **closed}


def _names(source: str) -> Iterator[str]:
    """Names that a function reads and does not make itself, in order."""
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]
    made = {a.arg for a in arguments}
    made |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    body: list[ast.AST] = [*tree.body, *tree.args.defaults, *(a.annotation for a in arguments if a.annotation)]
    read = (n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name))
    yield from (name for name in dict.fromkeys(read) if name not in made)
