"""The page of `mycc explain`: one file that fetches nothing; a browser finds the slowest kernel and follows it."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from mycc.compiler.explain.api import explain_package
from mycc.compiler.explain.page import html_page

from .browser import difference, needs_browser, run_in_browser
from .screens import FOLDER, SCREENS, draw, stored_report


@pytest.fixture(scope="module")
def data(package: Path) -> Any:
    """A measured report beside itself, through JSON and back."""
    return json.loads(explain_package(package, measure=True, against=package).json())


class _Addresses(HTMLParser):
    """What a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]


def test_the_page_is_one_file_that_fetches_nothing(data: Any) -> None:
    page = html_page(data)
    assert len(page) < 3_000_000
    seen = _Addresses()
    seen.feed(page)
    assert seen.found == ["#main"]
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert not re.search(r"@import|url\(", style)
    assert "sourceMappingURL" not in page
    assert "Permission is hereby granted" in page
    assert "BSD 3-Clause" in page or "Redistribution and use" in page


def test_texts_of_the_model_stay_texts(data: Any) -> None:
    hostile = copy.deepcopy(data)
    hostile["package"]["name"] = "</script><script>alert(1)</script>"
    page = html_page(hostile)
    assert "<script>alert" not in page
    assert "&lt;/script&gt;" in page  # the title


@needs_browser
def test_the_slowest_kernel_is_found_and_followed_to_its_line(data: Any, tmp_path: Path) -> None:
    (facts,) = data["entry_points"][0]["targets"].values()
    slowest = max(facts["kernels"], key=lambda k: k["us"])
    answer = run_in_browser(
        html_page(data),
        """
        const first = document.querySelector("main [data-kernel]");
        first.click(); await tick();
        const title = document.querySelector("#kernel-detail h2").textContent;
        document.querySelector("#detail [data-line]").click(); await tick();
        const here = document.querySelector("main .row.here");
        const text = (selector) => here.querySelector(selector).textContent;
        const generated = document.querySelector("#generated .code").textContent.includes("void ");
        const seen = { title, tab: state.tab, line: text(".no"), text: text(".text"), generated, hash: location.hash };
        const back = document.querySelector("#generated .row.here");
        select({ line: null }); await tick();
        document.querySelector(`#generated [data-generated="${back.dataset.generated}"]`).click(); await tick();
        return { ...seen, leads: back.title, again: document.querySelector("main [data-row].here .no").textContent };
        """,
        tmp_path,
    )
    assert answer["title"] == f"#{slowest['index']} {slowest['name']}"
    assert answer["tab"] == "code"
    lines = [int(s.rpartition(":")[2]) for s in slowest["sources"]]
    assert int(answer["line"]) in lines
    assert "self." in answer["text"]
    assert answer["generated"]
    assert answer["leads"].startswith("net.py:")
    assert f"net.py:{answer['again']}" in answer["leads"]
    assert f"kernel={slowest['index']}" in answer["hash"]


@needs_browser
def test_every_view_draws_and_the_graph_opens_by_modules(data: Any, tmp_path: Path) -> None:
    answer = run_in_browser(
        html_page(data),
        """
        const drawn = {};
        for (const [id] of TABS) { select({ tab: id }); await tick(); drawn[id] = main.textContent.length; }
        select({ tab: "graph", kernel: null, node: null }); openModules.open = new Set([""]); render(); await tick();
        const folded = document.querySelectorAll(".node.folded").length;
        const group = document.querySelector(".node.folded");
        group.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true })); await tick();
        const inside = [...document.querySelectorAll(".node text:first-of-type")].map((t) => t.textContent);
        const refused = (select({ tab: "fusions" }), document.querySelectorAll(".edge.refused title"));
        const found = search("slowest")[0].kind;
        const bare = (e) => !(e.textContent || e.ariaLabel);
        const unnamed = [...document.querySelectorAll("button, th, [role=button], [role=region]")].filter(bare).length;
        return { drawn, folded, inside, refused: [...refused].map((t) => t.textContent), found, unnamed };
        """,
        tmp_path,
    )
    assert min(answer["drawn"].values()) > 40
    assert set(answer["drawn"]) >= {"graph", "code", "fusions", "memory", "roofline", "timeline", "compare"}
    assert answer["folded"] == 1
    assert "gelu" in answer["inside"]
    assert answer["refused"]
    assert all("not fused: " in text for text in answer["refused"])
    assert answer["found"] == "the slowest kernel"
    assert answer["unnamed"] == 0


def many_nodes(data: Any, blocks: int) -> Any:
    """The report with a graph of 50 nodes in each of many modules."""
    large = copy.deepcopy(data)
    entry = large["entry_points"][0]
    nodes, before = [entry["graph"]["nodes"][0]], entry["graph"]["nodes"][0]["name"]
    modules = {"": "Net"}
    for block in range(blocks):
        modules[f"layers.{block}"] = "Block"
        for i in range(50):
            name = f"n{block}_{i}"
            nodes.append({"name": name, "op": "aten.add.Tensor", "type": "f32[4]", "module": f"layers.{block}",
                          "inputs": [before, f"n{block - 1}_0"] if block else [before]})  # fmt: skip
            before = name
    entry["graph"] = {"nodes": nodes, "modules": modules, "results": [before]}
    return large


@needs_browser
def test_thousands_of_nodes_are_laid_out_in_seconds(data: Any, tmp_path: Path) -> None:
    answer = run_in_browser(
        html_page(many_nodes(data, 60)),
        """
        const start = performance.now();
        select({ tab: "graph" }); const folded = document.querySelectorAll(".node").length;
        openModules.open = new Set(["", ...Object.keys(entry().graph.modules)]); render();
        return { folded, open: document.querySelectorAll(".node").length, ms: performance.now() - start };
        """,
        tmp_path,
    )
    assert answer["open"] >= 3000
    assert answer["folded"] < 200
    assert answer["ms"] < 30_000


def test_the_stored_report_fits_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs/schemas/explain-1.json").read_text())
    jsonschema.validate(stored_report(), schema)


@needs_browser
def test_lines_of_the_generated_source_lead_to_the_lines_whose_values_they_compute(tmp_path: Path) -> None:
    """Kernel 1 is a product of line 12 with the sum of line 23 in its epilogue."""
    answer = run_in_browser(
        html_page(stored_report()),
        """
        const lines = report.code[kernels()[1].code].text.split("\\n"), places = linePlaces(kernels()[1], lines);
        return lines.map((text, i) => [text.trim(), places[i].map((p) => p.line).sort()]);
        """,
        tmp_path,
    )
    found = dict(answer)
    assert found["store(y0 + c0 * m + column, acc_ + load(w0 + column) + load(x0 + c0 * m + column));"] == [12, 23]
    assert found["const vf32 acc_ = load(acc + i); (void)acc_;"] == [12]
    assert found["prefetch_l1(x0 + c0 * m + column);"] == [23]
    assert found["const float *w0;"] == found["args.batch = 1;"] == []


@needs_browser
@pytest.mark.parametrize("screen", SCREENS)
def test_the_views_look_as_they_did(screen: str, tmp_path: Path) -> None:
    drawn = tmp_path / f"{screen}.png"
    draw(screen, tmp_path, drawn)
    mean, most = difference(drawn, FOLDER / f"{screen}.png", tmp_path)
    assert mean < 0.02, f"look at {drawn}; `python -m tests.explain.screens` takes it over"
    assert most < 0.5


@needs_browser
def test_pictures_that_differ_are_told_apart(tmp_path: Path) -> None:
    mean, most = difference(FOLDER / "memory.png", FOLDER / "roofline.png", tmp_path)
    assert mean > 0.02
    assert most > 0.5
