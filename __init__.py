"""mycc: an ahead-of-time compiler for PyTorch models.

    import mycc
    mycc.compile(model, args, out="model.pkg")      # needs torch: the extra "compiler"
    m = mycc.load("model.pkg")                      # numpy is enough
    y = m(x)

Importing mycc imports neither torch nor numpy: every name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "CompileError", "EntryPoint", "Error", "Explanation", "InputError", "Lion", "LoadError", "Model", "Port",
    "RunError", "Signature", "State", "Symbol", "TritonLaunch", "__version__", "compile", "compile_embedding",
    "compile_generation", "compile_image_text", "compile_speech", "compile_text2text", "compile_training",
    "compile_transformer", "cpp_kernel", "explain", "load", "lowering", "replace_weights", "triton_kernel",
]  # fmt: skip

_HOMES = {
    "compile": ".compiler.api",
    "compile_embedding": ".compiler.generation.embedding",
    "compile_generation": ".compiler.generation.compile",
    "compile_image_text": ".compiler.generation.seen",
    "compile_speech": ".compiler.generation.sources",
    "compile_text2text": ".compiler.generation.sources",
    "compile_training": ".compiler.api",
    "compile_transformer": ".compiler.generation.forward",
    "explain": ".compiler.explain.api",
    "replace_weights": ".compiler.package.other_weights",
    "Lion": ".compiler.training.lion",
    "Explanation": ".compiler.explain.explanation",
    "EntryPoint": ".runtime.loader",
    "Model": ".runtime.loader",
    "Port": ".runtime.signature",
    "Signature": ".runtime.signature",
    "State": ".runtime.state",
    "Symbol": ".runtime.signature",
    "load": ".runtime.loader",
    "lowering": ".compiler.lower.core.custom",
    "cpp_kernel": ".compiler.lower.core.custom",
    "triton_kernel": ".compiler.lower.core.custom",
    "TritonLaunch": ".compiler.lower.core.custom",
    "Error": ".runtime.errors",
    "CompileError": ".runtime.errors",
    "InputError": ".runtime.errors",
    "LoadError": ".runtime.errors",
    "RunError": ".runtime.errors",
}

if TYPE_CHECKING:
    from .compiler.api import compile, compile_training
    from .compiler.explain.api import explain
    from .compiler.explain.explanation import Explanation
    from .compiler.generation.compile import compile_generation
    from .compiler.generation.embedding import compile_embedding
    from .compiler.generation.forward import compile_transformer
    from .compiler.generation.seen import compile_image_text
    from .compiler.generation.sources import compile_speech, compile_text2text
    from .compiler.lower.core.custom import TritonLaunch, cpp_kernel, lowering, triton_kernel
    from .compiler.package.other_weights import replace_weights
    from .compiler.training.lion import Lion
    from .runtime.errors import CompileError, Error, InputError, LoadError, RunError
    from .runtime.loader import EntryPoint, Model, load
    from .runtime.signature import Port, Signature, Symbol
    from .runtime.state import State


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        home = importlib.import_module(_HOMES[name], __name__)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.compiler":
            raise
        from .runtime.installation import NO_COMPILER

        raise AttributeError(f"{__name__}.{name}: {NO_COMPILER}") from None
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
