"""`torch.compile(model, backend="mycc")`."""

from __future__ import annotations

from typing import Any

__all__ = ["explain_compilation"]


def explain_compilation(function: Any, *args: Any, **words: Any) -> Any:
    """See explain.explain_compilation: torch is imported when it is first called."""
    from .explain import explain_compilation as explain

    return explain(function, *args, **words)
