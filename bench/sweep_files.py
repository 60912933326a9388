"""The results of bench/sweep.py in a file, and its rows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from architectures.base import Row
from architectures.library_base import LibraryRow
from sweep_page import CASES, Result, Words, page
from sweep_peers import PEERS
from torch.utils import _pytree as pytree

AnyRow = Row | LibraryRow
Task = tuple[str, str]


@dataclass(frozen=True)
class Table:
    """Rows, what is said of those that are not right, the stem of the files' names, and the page's words."""

    rows: Sequence[AnyRow]
    notes: Mapping[str, str]
    stem: str
    words: Words
    libraries: tuple[str, ...]


@dataclass
class Found:
    """Results by task, the versions of the libraries that they were found with, and what PEERS made of the others."""

    results: dict[Task, Result] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    peers: dict[tuple[str, str, str], Result] = field(default_factory=dict)


@dataclass(frozen=True)
class Files:
    """The results, and the page that is made of them."""

    results: Path
    page: Path
    table: Table

    def read(self) -> Found:
        """What was found before."""
        if not self.results.exists():
            return Found()
        kept = json.loads(self.results.read_text())
        by_task = {(r["name"], r["case"]): Result(**r) for r in kept["results"]}
        peers = {(r["name"], r["case"], r["kind"]): Result(**r) for r in kept.get("peers", [])}
        return Found(by_task, kept["versions"], peers)

    def write(self, found: Found) -> None:
        """A line per result, in the order of the table, and the page; whoever reads meanwhile finds a whole file."""
        tasks = [(row.name, case) for row in self.table.rows for case in cases_of(row)]
        ordered = [found.results[t] for t in tasks if t in found.results]
        peers = [
            r for t in tasks for p in PEERS if (r := found.peers.get((*t, p))) and found.results[t].status != "right"
        ]
        parts = {"results": ordered, **({"peers": peers} if peers else {})}
        lists = [f'"{n}": [\n' + ",\n".join(json.dumps(asdict(r)) for r in part) + "\n]" for n, part in parts.items()]
        _replace(self.results, f'{{"versions": {json.dumps(found.versions)}, {", ".join(lists)}}}\n')
        _replace(self.page, page(ordered, found.versions, self.table.notes, self.table.words, peers))


def cases_of(row: AnyRow) -> tuple[str, ...]:
    """Without "dynamic" where no size of the inputs has a name."""
    return CASES if any(pytree.tree_leaves(row.dynamic_shapes())) else CASES[:1]


def versions_of(table: Table, before: Mapping[str, str]) -> dict[str, str]:
    """Of the libraries; with those of results that stay."""
    now = {name: _version(name) for name in table.libraries}
    kept = {name: [v for v in before.get(name, "").split("/") if v and v != now[name]] for name in now}
    return {name: "/".join([*kept[name], *filter(None, [now[name]])]) for name in now}


def _version(name: str) -> str:
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return ""


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
