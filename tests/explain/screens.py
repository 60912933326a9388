"""The pictures that the page is compared with: `python -m tests.explain.screens` makes them again from report.json.

Look at what it writes before you commit it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from mycc.compiler.explain.compare import beside
from mycc.compiler.explain.page import html_page

from .browser import screenshot

__all__ = ["FOLDER", "SCREENS", "draw", "stored_report"]

FOLDER = Path(__file__).with_name("screens")
#: name -> what leads there
SCREENS = {
    "overview": "select({ tab: 'overview', kernel: 0 })",
    "graph": "select({ tab: 'graph' })",
    "code": "select({ tab: 'code', file: 0, line: 12, kernel: 0 })",
    "fusions": "select({ tab: 'fusions' })",
    "memory": "select({ tab: 'memory' })",
    "roofline": "select({ tab: 'roofline', kernel: 1 })",
    "dark": "document.documentElement.dataset.theme = 'dark'; select({ tab: 'timeline' })",
}


def stored_report() -> Any:
    """The report that lies beside this file, measured, beside itself."""
    data = json.loads(Path(__file__).with_name("report.json").read_text())
    return {**data, "against": beside(data, data)}


def draw(name: str, folder: Path, out: Path) -> None:
    screenshot(html_page(stored_report()), SCREENS[name], folder, out)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for screen in SCREENS:
        with tempfile.TemporaryDirectory() as work:
            draw(screen, Path(work), FOLDER / f"{screen}.png")
