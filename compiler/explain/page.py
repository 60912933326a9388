"""The report as one HTML page: templates/explain, the libraries under vendor/ and the data, all in one file."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

from ...templates import TEMPLATES

__all__ = ["html_page"]

_FOLDER = TEMPLATES / "explain"
_LIBRARIES = ("dagre", "highlight")
_SCRIPTS = ("core", "layout", "canvas", "graph", "charts", "views", "code", "package", "detail", "exports", "main")
_PLACE = re.compile(r"@(title|style|report|scripts)@")


def html_page(report: Mapping[str, Any]) -> str:
    """The page's text. It fetches nothing, and shows texts of the report as texts, never as markup."""
    own = "\n".join(_text(f"{name}.js") for name in _SCRIPTS)
    parts = {
        "title": html.escape(f"mycc explain: {report['package']['name']}"),
        "style": _text("style.css") + _text("parts.css"),
        "report": json.dumps(report, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "scripts": "\n".join([*map(_library, _LIBRARIES), _script(own)]),
    }
    return _PLACE.sub(lambda found: parts[found[1]], _text("page.html"))


def _library(name: str) -> str:
    """A vendored library behind its licence."""
    code = re.sub(r"\n//# sourceMappingURL=.*", "", _text(f"vendor/{name}.min.js"))
    return f"<!--\n{_text(f'vendor/{name}.LICENSE')}-->\n{_script(code)}"


def _script(code: str) -> str:
    return "<script>\n" + code.replace("</script", "<\\/script") + "\n</script>"


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
