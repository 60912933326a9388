"""transformers' DynamicCache as an argument and a result: its keys and values, a tensor for each layer."""

from __future__ import annotations

import contextlib
import sys

__all__ = ["register_caches"]


def register_caches() -> None:
    """Lets torch take a DynamicCache apart, by transformers' own registration, where a program has loaded it."""
    if "transformers.cache_utils" not in sys.modules:
        return
    with contextlib.suppress(ImportError, AttributeError):  # a version that has another way
        from transformers.integrations.executorch import register_dynamic_cache_export_support

        register_dynamic_cache_export_support()
