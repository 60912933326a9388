"""A sample of bench/sweep.py's architectures, through its own judgement; `make nightly` has them all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
#: one with an encoder and a decoder on sound, one with experts, one of images
SAMPLE = ("whisper", "olmoe", "bit")


@pytest.fixture(scope="module")
def sweep() -> Iterator[Any]:
    """bench/sweep.py, which imports what lies beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        import sweep

        yield sweep
    for name in [
        n
        for n in sys.modules
        if n.partition(".")[0]
        in ("sweep", "sweep_files", "sweep_models", "sweep_page", "sweep_peers", "library_models", "architectures")
    ]:
        del sys.modules[name]


@pytest.mark.parametrize("case", ["static", "dynamic"])
@pytest.mark.parametrize("name", SAMPLE)
def test_an_architecture_is_right(sweep: Any, name: str, case: str) -> None:
    result = sweep.measure(sweep.BY_NAME[name], case, sweep.How(quick=True))
    assert result.status == "right", result.reason


def test_a_wrong_package_is_seen(sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load = sweep.mycc.load
    monkeypatch.setattr(sweep.mycc, "load", lambda path: lambda *inputs: _off(load(path)(*inputs)))
    result = sweep.measure(sweep.BY_NAME["bit"], "static", sweep.How(quick=True))
    assert result.status == "wrong"
    assert "result 0 at a batch of 2" in result.reason


def _off(found: Any) -> Any:
    return tuple(x + 1e-3 for x in found) if isinstance(found, (tuple, list)) else found + 1e-3


def test_a_run_that_ends_early_is_a_crash(sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "measure", lambda *_: sweep.os._exit(3))
    (result,) = sweep.in_processes([("vit", "static")], sweep.How(), jobs=2)
    assert (result.status, result.reason) == ("crash", "the process died with code 3")
    monkeypatch.setattr(sweep, "measure", lambda *_: sweep.time.sleep(60))
    (result,) = sweep.in_processes([("vit", "static")], sweep.How(limit=0.3), jobs=1)
    assert (result.status, result.reason) == ("crash", "not done after 0 s")


def test_the_page_is_made_of_the_results_alone(sweep: Any, tmp_path: Path) -> None:
    results = {
        ("vit", "static"): sweep.Result("vit", "static", "right", "", 2e-7, 1e-7, kind="vision classifier"),
        ("bert", "static"): sweep.Result("bert", "static", "refused", "no | way", kind="text encoder"),
        ("bert", "dynamic"): sweep.Result("bert", "dynamic", "refused", "no | way", kind="text encoder"),
    }
    vit = sweep.replace(results["vit", "static"], torch="2.13", stages={"capture": 2.0, "build": 1.5})
    results["vit", "static"] = vit
    peers = {("bert", "static", "ONNX"): sweep.Result("bert", "static", "right", kind="ONNX")}
    found = sweep.Found(results, {"torch": "2.11/2.12/2.13"}, peers)
    files = sweep.Files(tmp_path / "sweep.json", tmp_path / "sweep.md", sweep.TABLES["transformers"])
    files.write(found)
    assert files.read() == found
    page = files.page.read_text()
    assert "| vit | vision classifier | right | 2.0e-07 |  |  | 1.0e-07 |" in page
    assert "| bert | static, dynamic | refused |  | no \\| way |" in page
    assert "| static | 1 | 1 | 0 | 0 | 0 |" in page
    assert "Of these 2 programs ONNX takes 1." in page
    assert "| bert | static | right |" in page
    assert "Of these programs 1 with torch 2.13, 2 with 2.11 or 2.12; their results do not say which." in page
    assert "| vit | static | 3.5 | 2.0 | 1.5 |" in page


def test_other_compilers_are_judged_alike(sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(package: Any) -> Any:
        monkeypatch.setitem(sweep.PEERS, "own", lambda model, *_: package(model))
        return sweep.measure_peer(sweep.BY_NAME["bit"], "dynamic", sweep.How(peer="own"))

    def refuses(_: Any) -> Any:
        raise ValueError("no such thing")

    assert measured(lambda model: model).status == "right"
    assert measured(lambda model: lambda *inputs: _off(model(*inputs))).status == "wrong"
    assert (
        measured(lambda model: lambda *inputs: model(*inputs) if len(inputs[0]) > 1 else refuses(0)).status == "wrong"
    )
    refused = measured(refuses)
    assert (refused.status, refused.reason) == ("refused", "ValueError: no such thing")


def test_versions_of_results_that_stay(sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sweep_files

    monkeypatch.setattr(sweep_files, "version", lambda _: "2")
    table = sweep.TABLES["transformers"]
    assert sweep.versions_of(table, {"torch": "1"}) == {"transformers": "2", "torch": "1/2"}
    assert sweep.versions_of(table, {"torch": "1/2"})["torch"] == "1/2"
