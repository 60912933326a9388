"""A report that can be looked at, saved, opened and shown in a notebook."""

from __future__ import annotations

import html
import json
import os
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import Any

from ...runtime.errors import InputError
from ...runtime.text import counted
from .exports import dot_text, trace_events
from .page import html_page

__all__ = ["Explanation", "write_file"]

_HEIGHT = 720  # pixels of the frame in a notebook


@dataclass(frozen=True)
class Explanation:
    """What `mycc.explain` gives; in a notebook it shows itself.

    data: JSON values, as docs/schemas/explain-1.json describes them.
    """

    data: Mapping[str, Any]

    def html(self) -> str:
        """The report as one page that fetches nothing."""
        return html_page(self.data)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page. Raises InputError when the file cannot be written."""
        return write_file(Path(path), self.html())

    def open(self) -> Path:
        """Shows the page in the browser, from a file in the folder for temporary files; gives its path."""
        handle, name = mkstemp(prefix=f"{self.data['package']['name']}-", suffix=".html")
        os.close(handle)
        path = self.save(name)
        webbrowser.open(path.as_uri())
        return path

    def json(self) -> str:
        """`data` as text."""
        return json.dumps(self.data, allow_nan=False, indent=1) + "\n"

    def trace(self) -> dict[str, Any]:
        """The kernels of the first entry point as a trace for Perfetto or chrome://tracing."""
        return trace_events(self.data)

    def dot(self) -> str:
        """The graph of the first entry point for Graphviz or Netron."""
        return dot_text(self.data)

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        name = html.escape(str(self.data["package"]["name"]), quote=True)
        style = f"width:100%;height:{_HEIGHT}px;border:1px solid #8884;border-radius:8px"
        return f'<iframe title="mycc explain: {name}" srcdoc="{page}" style="{style}"></iframe>'

    def __str__(self) -> str:
        lines = []
        for entry in self.data["entry_points"]:
            lines.append(entry["signature"])
            for target, facts in entry["targets"].items():
                done = sum(fusion["done"] for fusion in entry["fusions"])
                refused = len(entry["fusions"]) - done
                kernels, fusions = counted(len(facts["kernels"]), "kernel"), counted(done, "fusion")
                lines.append(f"  {target}: {kernels}, {fusions}, {refused} refused")
                timed = [k for k in facts["kernels"] if k.get("us") is not None]
                if timed:
                    slowest = max(timed, key=lambda k: k["us"])
                    where = ", ".join(slowest["sources"][:3])
                    lines.append(
                        f"  slowest: {slowest['name']} {slowest['us']:.1f} us, {slowest['share']:.0%}  {where}"
                    )
        return "\n".join(lines)


def write_file(path: Path, text: str) -> Path:
    """Writes a file as a whole: what was there stays until the new text is. Raises InputError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"cannot write '{path}': {error.strerror}") from None
    return path
