"""A model's source with the example inputs that a command was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .examples import made_inputs, override_inputs
from .export import forward_of
from .source import Source

__all__ = ["with_inputs"]


def with_inputs(loaded: Source, texts: Sequence[str]) -> Source:
    """The source with some of its examples replaced, or with those alone where it has none of its own.

    texts: such as `x=f32[1,3,224,224]`. The source is loaded with needs_inputs=False where there are any.

    Raises:
        CompileError: a text cannot be read or names no input; or the source has no examples and one is missing.
    """
    if not texts:
        return loaded
    forward = forward_of(loaded.model)
    if loaded.has_inputs:
        args, kwargs = override_inputs(forward, loaded.args, loaded.kwargs, texts)
    else:
        args, kwargs = made_inputs(forward, texts)
    return replace(loaded, args=args, kwargs=kwargs)
