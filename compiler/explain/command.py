"""`mycc explain`: what the command writes, and the package of a model that is compiled for it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..bench.command import check_file
from .explanation import Explanation, write_file

if TYPE_CHECKING:
    from ..capture.source import Source
    from ..observe import Observer
    from ..options import CompileOptions

__all__ = ["Wanted", "check_wanted", "deliver", "explaining"]


@dataclass(frozen=True)
class Wanted:
    """What the user asked for: out (the page), open (in the browser), trace, dot, json (a path, or "-" for standard
    output)."""

    out: Path | None = None
    open: bool = False
    trace: Path | None = None
    dot: Path | None = None
    json: str | None = None


def check_wanted(wanted: Wanted) -> None:
    """Raises InputError before the work when a file cannot be written at its end."""
    for path in (wanted.out, wanted.trace, wanted.dot, Path(wanted.json) if wanted.json not in (None, "-") else None):
        check_file(path)


def deliver(explanation: Explanation, wanted: Wanted) -> Iterator[str]:
    """Writes what was asked for, the page where nothing was; gives lines for a person, or the JSON itself."""
    page = wanted.out
    if page is None and not (wanted.open or wanted.trace or wanted.dot or wanted.json):
        page = Path(f"{explanation.data['package']['name']}.html")
    said = []
    if page is not None:
        said.append(f"{write_file(page, explanation.html())}: open it in a browser")
    if wanted.trace is not None:
        text = json.dumps(explanation.trace(), allow_nan=False)
        said.append(f"{write_file(wanted.trace, text)}: open it at ui.perfetto.dev or chrome://tracing")
    if wanted.dot is not None:
        said.append(f"{write_file(wanted.dot, explanation.dot())}: open it with Netron, or dot -Tsvg")
    if wanted.json == "-":
        yield explanation.json().rstrip()
        said = []
    elif wanted.json is not None:
        write_file(Path(wanted.json), explanation.json())
    else:
        yield str(explanation)
    yield from said
    if wanted.open:
        shown = explanation.open() if page is None else _show(page)
        if wanted.json != "-":
            yield f"shown: {shown}"


def _show(page: Path) -> Path:
    import webbrowser

    webbrowser.open(page.absolute().as_uri())
    return page


@contextmanager
def explaining(
    load: Callable[[], Source],
    options: CompileOptions,
    dynamic: Sequence[str] | None,
    progress: Observer,
) -> Iterator[Path]:
    """The package of the model that `load` gives, for as long as the block lasts."""
    from ..api import compile_entries, compile_request, require_torch, run_request
    from ..observe import running_stage

    with tempfile.TemporaryDirectory(prefix="mycc-explain-") as folder:
        with running_stage([progress], "load"):
            require_torch()
            loaded = load()
        entries = compile_entries(loaded.model, loaded.args, loaded.kwargs, loaded.dynamic_shapes, dynamic or ())
        request = compile_request(entries, options, Path(folder) / f"{loaded.name}.pkg")
        yield run_request(request, [progress])
