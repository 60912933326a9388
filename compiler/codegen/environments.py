"""Jinja's environments for templates of code, whose compiled form is kept as that of Python's modules is.

A process that renders a template the first time reads what an earlier one compiled from `__pycache__` in the templates'
folder; where nobody may write there, it compiles the template itself.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket

from ...templates import TEMPLATES

__all__ = ["environment"]


@cache
def environment(folder: str) -> jinja2.Environment:
    """The templates of a folder; an undefined name is an error. In host/ and cuda/ block tags stand alone."""
    options: dict[str, Any] = {
        "trim_blocks": folder in ("host", "cuda"),
        "lstrip_blocks": folder == "cuda",
        "keep_trailing_newline": True,
        "autoescape": False,
        "auto_reload": False,  # or else the file's age is asked for at every kernel
    }
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES / folder]),
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_Compiled(TEMPLATES / "__pycache__", f"{folder} {jinja2.__version__} {options}"),
        **options,
    )


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Compiled templates in a folder, by their text, by the interpreter, and by what else they are compiled with."""

    def __init__(self, folder: Path, compiled_with: str) -> None:
        super().__init__(str(folder), f"{sys.implementation.cache_tag}-%s.jinja")
        self._compiled_with = compiled_with

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        return hashlib.sha256(f"{self._compiled_with}\0{name}\0{filename}".encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)
