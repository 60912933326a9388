"""`mycc bench`: a model beside its peers, in processes of their own; the report; refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from mycc import CompileError, InputError
from mycc.compiler.bench import compare as comparing
from mycc.compiler.bench.command import is_source, numbers, refuse
from mycc.compiler.bench.compare import BenchRequest, CaseResult, Comparison, PeerResult
from mycc.compiler.bench.page import html_page
from mycc.compiler.bench.peers import PEERS, find_peers, missing_module
from mycc.compiler.bench.prepare import batch_of, load_model, output_error, resize_batch
from mycc.compiler.bench.process import PeerFailed, Worker
from mycc.compiler.bench.report import case_title, render_case, render_summary, to_json
from rich.console import Console

from ..helpers.command_server import CommandServer

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(24, 40)

    def forward(self, x, ids, scale=1.0, mask=None):
        y = torch.relu(self.layer(x)) * scale
        return {"y": y + ids[:, None], "ids": ids + 1}


model = Model().eval()  # random weights: every process has to make the same
example_inputs = ((torch.randn(3, 24), torch.arange(3)), {"scale": 2.0})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_model_beside_eager(server: CommandServer, folder: Path) -> None:
    quick = ("--seconds", "0.02", "--turns", "2")
    written = ("--json", "found.json", "--html", "found.html")
    done = server.mycc("bench", "model.py", "--against", "eager", "--batch", "2,5", *quick, *written, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "found.json").read_text())
    assert [(case["batch"], case["threads"]) for case in found["cases"]] == [(2, 1), (5, 1)]
    for case in found["cases"]:
        own, eager = case["results"]
        assert (own["name"], own["status"], eager["name"], eager["status"]) == ("mycc", "ok", "eager", "ok")
        assert 0 < own["best"] <= own["median"]
        assert len(own["turns"]) == 2
        assert own["error"] <= case["tolerance"] < 1e-3
        assert case["best_peer"] == "eager"
        most = comparing.UNEVEN
        uneven = any(r["median"] > most * r["best"] or max(r["turns"]) > most * min(r["turns"]) for r in (own, eager))
        assert case["ratio"] == (None if uneven else pytest.approx(eager["median"] / own["median"]))
        assert case["gflop"] == pytest.approx(2 * 24 * 40 * case["batch"] / 1e9)
    assert "load " in done.stderr.partition("capture")[0]  # importing torch is no silence
    assert "eager torch" in done.stdout
    assert "batch 5, 1 thread: " + ("mycc is" if found["cases"][1]["ratio"] else "no ratio") in done.stdout
    assert (folder / "found.html").read_text().startswith("<!doctype html>")


def test_what_disagrees_is_reported_and_does_not_count(server: CommandServer, folder: Path) -> None:
    quick = ("--seconds", "0.02", "--turns", "1", "--tolerance", "1e-12")
    done = server.mycc("bench", "model.py", "--against", "eager", *quick, "--json", cwd=folder)
    assert done.returncode == 1, done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    assert [result["status"] for result in case["results"]] == ["disagrees", "disagrees"]
    assert "more than 1.0e-12" in case["results"][1]["reason"]
    assert (case["best_peer"], case["ratio"]) == (None, None)
    assert case["results"][1]["median"] > 0


STATEFUL = """
import torch
from torch import nn


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 8))  # a fifth call would write behind its end
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x, total):
        self.rows.index_copy_(0, self.count[None], x[None])
        self.count += 1
        total += x
        return self.rows.sum(0) * total


model = Cache().eval()
example_inputs = (torch.arange(8.0), torch.ones(8))
"""


@pytest.mark.slow  # test_a_model_beside_eager compares the same two
def test_a_model_with_state_starts_each_run_alike(server: CommandServer, folder: Path) -> None:
    (folder / "cache.py").write_text(STATEFUL)
    quick = ("--seconds", "0.02", "--turns", "2")
    done = server.mycc("bench", "cache.py", "--against", "eager,aoti", *quick, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    own, eager, aoti = case["results"]
    assert (own["status"], eager["status"], aoti["status"]) == ("ok", "ok", "failed")
    assert "the model changes its state or an argument, which cannot be set back here" in aoti["reason"]
    assert (own["error"], eager["error"]) == (0.0, 0.0)

    assert server.mycc("compile", "cache.py", "--out", "cache.pkg", cwd=folder).returncode == 0
    done = server.mycc("bench", "cache.pkg", "--runs", "20", "--kernels", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"] == 20


REFUSALS = [
    (["nope.py"], "error: there is no file 'nope.py'"),
    (["nope.pkg"], "error: cannot read nope.pkg"),
    (["model.py", "--against", "egaer"], "error: unknown peer 'egaer'\n  Did you mean eager? Peers: eager, compile"),
    (["model.py", "--threads", "1,0"], "error: --threads 1,0: not a list of numbers from 1"),
    (["model.py", "--batch", "x"], "error: --batch x: not a list of numbers from 1"),
    (["model.py", "--runs", "3"], "error: --runs is for a package, not for a model"),
    (["model.py", "--turns", "0"], "error: turns and seconds have to be above 0"),
    (["model.py", "--tolerance", "-1"], "error: the tolerance has to be above 0"),
    (["model.py", "--html", "no/x.html"], "error: cannot write 'no/x.html': there is no directory"),
    (["model.py", "--json", "."], "error: cannot write '.': it is a directory"),
    (["model.py", "--target", "cpu:z80"], "error: "),
    (["model.pkg", "--against", "aoti"], "error: --against is for a model, not for a package"),
    (["model.pkg", "--batch", "2", "--html", "x"], "error: --batch, --html are for a model, not for a package"),
    (["model.py", "--input", "x=f32[3"], "error: cannot read --input"),
]


@pytest.mark.parametrize(("words", "message"), REFUSALS, ids=lambda value: " ".join(value)[:40] if value else "")
def test_refusals(server: CommandServer, folder: Path, words: list[str], message: str) -> None:
    done = server.mycc("bench", *words, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_every_peer_agrees(server: CommandServer, folder: Path) -> None:
    installed = [peer.name for peer in PEERS.values() if missing_module(peer) is None]
    quick = ("--seconds", "0.02", "--turns", "1")
    done = server.mycc("bench", "model.py", "--against", ",".join(installed), *quick, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    assert {r["name"]: (r["status"], r["reason"]) for r in case["results"]} == dict.fromkeys(
        ["mycc", *installed], ("ok", "")
    )


# -- processes --------------------------------------------------------------------------------------------------------


def job(folder: Path, text: str) -> dict[str, Any]:
    (folder / "source.py").write_text(text)
    return {
        "peer": "eager", "source": str(folder / "source.py"), "inputs": [], "batch": None, "threads": 1,
        "folder": str(folder), "package": "", "outputs": str(folder / "outputs.npz"), "changes": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('no weights here')", "no weights here"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by signal SIGKILL"),
        ("import os; os._exit(3)", "ended with exit code 3"),
    ],
)
def test_a_peer_that_fails_says_why(tmp_path: Path, text: str, reason: str) -> None:
    with Worker(job(tmp_path, text)) as worker, pytest.raises(PeerFailed, match=reason):
        worker.ready()


class Iterations:
    """A worker whose turns take what the list says, the last of which goes on."""

    def __init__(self, *medians: float) -> None:
        self.medians, self.taken = list(medians), 0

    def turn(self, seconds: float) -> dict[str, float]:
        del seconds
        self.taken += 1
        median = self.medians[min(self.taken, len(self.medians)) - 1]
        return {"median": median, "best": median}


def taken(monkeypatch: pytest.MonkeyPatch, gflops: Iterator[float], *workers: Iterations) -> dict[str, list[Any]]:
    """What counts of two turns of each worker; gflops: the multiply-adds before and after each turn."""
    monkeypatch.setattr(comparing, "measure_gflops", lambda threads: next(gflops))
    named = {f"peer{i}": worker for i, worker in enumerate(workers)}
    results = {name: PeerResult(name, name, "ok") for name in named}
    request = BenchRequest("model.py", (), (1,), turns=2)
    return comparing._turns(named, request, results, 1)  # type: ignore[arg-type]


def test_disturbed_rounds_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others used the cores after the first turn of one peer, and before its second one."""
    gflops = iter([100.0, 60, 100, 99] + [98, 97, 55, 100] + [100.0] * 40)
    one, other = Iterations(9, 5), Iterations(3, 7, 3)
    found = taken(monkeypatch, gflops, one, other)
    assert one.taken == other.taken == 4
    assert [turn.median for turn in found["peer0"]] == [5, 5]
    assert [turn.median for turn in found["peer1"]] == [3, 3]
    assert all(turn.roof > 97 for turns in found.values() for turn in turns)


def test_iterations_end_where_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always disturbed: so many rounds, and the least disturbed turns count."""
    levels = iter([100.0, 100.0] + [50.0, 50, 50, 50] * 6 + [60.0] * 40)
    one, other = Iterations(1), Iterations(2)
    found = taken(monkeypatch, levels, one, other)
    assert one.taken == other.taken == 2 * comparing.MOST_ROUNDS
    assert [len(turns) for turns in found.values()] == [2, 2]
    assert [turn.least for turn in found["peer1"]] == [60, 60]


def test_rounds_without_a_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the measuring library there are as many turns as asked for."""
    one = Iterations(4, 6, 8)
    found = taken(monkeypatch, iter([None] * 40), one)  # type: ignore[list-item]
    assert [turn.median for turn in found["peer0"]] == [4, 6]
    assert [turn.roof for turn in found["peer0"]] == [None, None]


def test_a_worker_is_stopped_between_its_rounds(tmp_path: Path) -> None:
    with Worker(job(tmp_path, MODEL)) as worker:
        assert worker.ready() > 0
        status = Path(f"/proc/{worker._process.pid}/status")
        assert "State:\tT" in status.read_text()
        timing = worker.turn(0.01)
        assert 0 < timing["best"] <= timing["median"]
        assert "State:\tT" in status.read_text()
        source = load_model(str(tmp_path / "source.py"))
        found = source.model(*source.args, **source.kwargs)
        assert output_error(tmp_path / "outputs.npz", [found["y"], found["ids"]]) == 0
        assert output_error(tmp_path / "outputs.npz", [found["y"]]) == float("inf")


# -- examples ---------------------------------------------------------------------------------------------------------


def test_resized_examples_keep_their_values() -> None:
    x, ids, table = torch.randn(3, 4), torch.arange(3), torch.randn(7, 3)
    args, kwargs = resize_batch((x, 2.0), {"ids": ids, "table": table}, 5)
    assert args[0].shape == (5, 4)
    assert torch.equal(args[0][3], x[0])
    assert args[1] == 2.0
    assert kwargs["ids"].tolist() == [0, 1, 2, 0, 1]
    assert kwargs["table"] is table
    assert batch_of(args, kwargs) == 5
    with pytest.raises(CompileError, match="cannot make the batch 2: no example input"):
        resize_batch((torch.tensor(1.0),), {}, 2)


def test_every_load_of_a_source_has_the_same_weights(folder: Path) -> None:
    first, second = (load_model(str(folder / "model.py"), batch=4) for _ in range(2))
    assert torch.equal(first.model.layer.weight, second.model.layer.weight)
    assert torch.equal(first.args[0], second.args[0])
    assert first.args[0].shape == (4, 24)


def test_the_examples_of_a_source_that_has_none_are_made(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("import torch\nmodel = torch.nn.Linear(6, 3).eval()\n")
    loaded = load_model(str(tmp_path / "bare.py"), ["input=f32[4,6]"], batch=2)
    assert [tuple(x.shape) for x in loaded.args] == [(2, 6)]
    assert loaded.args[0].dtype == torch.float32
    with pytest.raises(CompileError, match=r"bare\.py has no example inputs"):
        load_model(str(tmp_path / "bare.py"))


def test_an_exported_program_has_fixed_sizes(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(4, 2), (torch.randn(3, 4),))
    torch.export.save(program, tmp_path / "saved.pt2")
    assert load_model(str(tmp_path / "saved.pt2")).args[0].shape == (3, 4)
    with pytest.raises(CompileError, match="the sizes of the exported program"):
        load_model(str(tmp_path / "saved.pt2"), batch=2)


def test_command_words() -> None:
    assert numbers("1, 2,1", "--threads") == (1, 2)
    assert numbers(None, "--batch") == ()
    sources = ["model.py", "zoo.bert:build", "model.py:make", "saved.pt2"]
    assert [is_source(text) for text in [*sources, "model.pkg", "folder/model"]] == [True] * 4 + [False] * 2
    refuse({"--html": None, "--input": []}, "a model", "")
    with pytest.raises(InputError, match="--html is for a model"):
        refuse({"--html": Path("x")}, "a model", "")


# -- results ----------------------------------------------------------------------------------------------------------


def result(name: str, median: float | None, status: str = "ok", reason: str = "") -> PeerResult:
    turns = () if median is None else (median,)
    return PeerResult(name, PEERS[name].title if name in PEERS else name, status, reason, median, median, turns,
                      error=1e-7, build=1.0, percent=50.0)  # fmt: skip


CASE = CaseResult(8, 2, 1.5, 200.0, 1e-7, 1e-5, (
    result("mycc", 0.010), result("eager", 0.020), result("ort", 0.012),
    result("aoti", 0.001, "disagrees", "its error is 1.0e-01"),
    result("openvino", None, "missing", "openvino is not installed"),
))  # fmt: skip
SLOWER = replace(CASE, threads=1, results=(result("mycc", 0.02), result("ort", 0.01)))
COMPARISON = Comparison("<model>.py", (CASE, SLOWER))


def text_of(renderable: Any) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_the_best_peer_is_the_fastest_that_agrees() -> None:
    assert CASE.best_peer is CASE.result("ort")
    assert CASE.ratio == pytest.approx(1.2)
    assert CASE.speed(CASE.results[1]) == pytest.approx(0.6)
    assert SLOWER.ratio == pytest.approx(0.5)
    lonely = replace(CASE, results=(CASE.own, CASE.results[4]))
    assert (lonely.best_peer, lonely.ratio) == (None, None)
    wrong = replace(CASE, results=(replace(CASE.own, status="disagrees"), *CASE.results[1:]))
    assert wrong.ratio is None
    assert not Comparison("m", (wrong,)).accurate


def test_turns_that_differ_give_no_ratio() -> None:
    shaken = replace(CASE, results=(replace(CASE.own, turns=(0.180, 0.00056)), *CASE.results[1:]))
    assert shaken.ratio is None
    assert "the times of mycc differ by more than 2 times" in text_of(render_summary(Comparison("m", (shaken,))))
    slower_peer = replace(CASE, results=(CASE.own, replace(CASE.results[1], turns=(0.01, 0.09)), CASE.results[2]))
    assert slower_peer.ratio == pytest.approx(1.2)  # of a peer that is not the best it does not matter
    burst = replace(CASE, results=(replace(CASE.own, best=0.004), *CASE.results[1:]))
    assert burst.ratio is None  # most runs of its turns were disturbed


def test_table() -> None:
    text = text_of(render_case(CASE))
    assert text.startswith("batch 8, 2 threads: 1.5 GFLOP of products; roof 200 GFLOP/s")
    names = [line.split("  ")[0] for line in text.splitlines()[2:]]
    assert names == ["mycc", "AOTInductor", "ONNX Runtime", "eager torch", "OpenVINO"]
    assert "missing: openvino is not installed" in text
    assert "disagrees: its error is 1.0e-01" in text
    summary = text_of(render_summary(COMPARISON))
    assert "batch 8, 2 threads: mycc is 1.20 x as fast as ONNX Runtime, the best peer" in summary
    assert case_title(replace(CASE, batch=None, threads=1)) == "1 thread"


def test_json_knows_no_infinity() -> None:
    endless = replace(CASE, results=(replace(CASE.own, error=float("inf")), *CASE.results[1:]))
    (case,) = json.loads(to_json(Comparison("m", (endless,))))["cases"]
    assert case["results"][0]["error"] is None


class Page(HTMLParser):
    """Every tag and the text; fails where tags do not match."""

    VOID = ("meta", "rect", "line")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def bars(self) -> Iterator[float]:
        return (float(values["width"] or 0) for tag, values in self.tags if tag == "rect")


def test_page() -> None:
    text = html_page(COMPARISON, "2026-01-02 03:04")
    assert "://" not in text  # nothing comes from elsewhere
    assert "prefers-color-scheme: dark" in text
    assert "&lt;model&gt;.py" in text
    page = Page(text)
    words = " ".join(page.words)
    for expected in ("mycc runs 1.20 x as fast as ONNX Runtime", "openvino is not installed", "2026-01-02 03:04"):
        assert expected in words
    assert len([tag for tag, _ in page.tags if tag == "svg"]) == 3
    bars = list(page.bars())
    assert bars[0] / bars[1] == pytest.approx(1.2 / 0.5, rel=0.01)  # of the summary: ratios
    assert bars[2] / bars[4] == pytest.approx(0.010 / 0.012, rel=0.01)  # mycc, (aoti), ort


def test_peers_are_a_table() -> None:
    assert [peer.name for peer in find_peers(["ort", "eager", "ort"])] == ["ort", "eager"]
    absent = replace(PEERS["ort"], modules=("torch", "no_such_module"))
    assert missing_module(absent) == "no_such_module"
    with pytest.raises(InputError, match="unknown peer 'tvm'"):
        find_peers(["tvm"])
    with pytest.raises(InputError, match="there is no number of threads"):
        BenchRequest("m.py", ("eager",), ())


def test_a_missing_peer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(comparing, "missing_module", lambda peer: "onnxruntime" if peer.name == "ort" else None)
    with pytest.raises(PeerFailed, match="onnxruntime is not installed"):
        comparing._build(PEERS["ort"], {}, None, 1.0, None)  # type: ignore[arg-type]
