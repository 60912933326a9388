"""TorchScript inside a model: what torch.jit.script and torch.jit.trace made is called by its C++ method.

torch.export's tracer loses the module that such a method belongs to, where it looks it up itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["SCRIPT", "Scripted", "signature_of", "unscripted"]

SCRIPT = "mycc_script"  # the attribute under which a stand-in holds the script


class Scripted(torch.nn.Module):
    """Stands for a ScriptModule: the same parameters, buffers and results."""

    def __init__(self, script: torch.jit.ScriptModule) -> None:
        super().__init__()
        setattr(self, SCRIPT, script)
        self._method = [script._c._get_method("forward")]  # in a list: no attribute that torch.export looks into

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.jit.optimized_execution(False):  # operator by operator, as it stands
            return self._method[0](*args, **kwargs)


@contextmanager
def unscripted(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Stand-ins in the place of all ScriptModules below these modules, while it lasts."""
    places = [
        (parent, name, child)
        for module in modules
        for parent in _plain_modules(module)
        for name, child in parent._modules.items()
        if isinstance(child, torch.jit.ScriptModule)
    ]
    known = {id(child): Scripted(child) for _, _, child in places}
    try:
        for parent, name, child in places:
            parent._modules[name] = known[id(child)]
        yield
    finally:
        for parent, name, child in places:
            parent._modules[name] = child


def _plain_modules(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The module and those below it that are written in Python."""
    if isinstance(module, torch.jit.ScriptModule):
        return []
    below = [part for child in module.children() for part in _plain_modules(child)]
    return [module, *below]


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a TorchScript method or function, from its schema; None for others."""
    schema = getattr(function, "schema", None)
    if schema is None or not isinstance(function, (torch._C.ScriptMethod, torch._C.ScriptFunction)):
        return None
    arguments = schema.arguments[1:] if isinstance(function, torch._C.ScriptMethod) else schema.arguments
    kind = inspect.Parameter
    return inspect.Signature(
        [
            kind(
                a.name,
                kind.KEYWORD_ONLY if a.kwarg_only else kind.POSITIONAL_OR_KEYWORD,
                default=a.default_value if a.has_default_value() else kind.empty,
            )
            for a in arguments
        ]
    )
