"""A sample of the edges: reference inputs, special values, variants and modules; and the judgement of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from . import compact, page
from .catalog import DTYPES, Call, entries
from .edges import judge
from .sources import modules, op_programs
from .tally import Tally
from .unspecified import RULES
from .values import duplicate, filled, fills, overlaps, table
from .worker import work

NAN, INF = float("nan"), float("inf")


def _rows(names: list[str], dtype: str, kind: str, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    said: list[dict[str, Any]] = []
    batch = {"dtype": dtype, "entries": names, "kind": kind}
    work({**batch, "folder": str(folder), "cache": str(folder / "cache")}, said.append)
    return {(m["entry"], m["source"]): m for m in said if "status" in m}


#: entries that were wrong at an edge, or whose kernels are of many forms
SAMPLE = (
    "add",
    "cdist",
    "diff",
    "gather",
    "index_fill",
    "index_select",
    "put",
    "special.i1",
    "polygamma.polygamma_n_0",
)


def test_a_sample_of_the_edges(tmp_path: Path) -> None:
    rows = _rows(list(SAMPLE), "float32", "edges", tmp_path)
    assert {key: row["reason"] for key, row in rows.items() if row["status"] not in ("right", "none")} == {}
    assert all(rows[name, "special"]["right"] >= 50 for name in SAMPLE)
    assert rows["index_fill", "variants"]["right"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "names"), [("bfloat16", ["add", "sum", "cumsum"]), ("int64", ["add", "bincount"])])
def test_a_sample_of_other_dtypes(dtype: str, names: list[str], tmp_path: Path) -> None:
    rows = _rows(names, dtype, "edges", tmp_path)
    assert {key: row["reason"] for key, row in rows.items() if row["status"] not in ("right", "none")} == {}


def test_a_sample_of_the_modules(tmp_path: Path) -> None:
    """Batch norm changes its buffers in training mode."""
    names = ["nn.BatchNorm1d", "nn.PReLU"]
    rows = _rows(names, "float32", "modules", tmp_path)
    assert {key: row["reason"] for key, row in rows.items() if row["status"] != "right"} == {}
    assert all(rows[name, mode]["right"] for name in names for mode in ("eval", "train"))


@pytest.mark.parametrize("path", [compact.EDGES, compact.MODULES, compact.EDGES_CUDA, compact.MODULES_CUDA])
def test_nothing_is_wrong_at_the_edges(path: Path) -> None:
    broken = [(r["entry"], r["dtype"], r["reason"]) for r in compact.read(path) if r["status"] in ("wrong", "crash")]
    assert not broken


# -- what is compared --------------------------------------------------------------------------------------------------
def _judged(name: str, got: list[float], want: list[float], x: list[float], fill: str = "") -> str:
    entry = entries()[name]
    call = Call(entry.op.op, (torch.tensor(x),), {})
    return judge(entry, call, [torch.tensor(got)], [torch.tensor(want)], fill)


def test_zeros_nan_and_infinities_are_compared_exactly() -> None:
    x = [0.0, 1.0]
    assert _judged("neg", [-0.0, -1.0], [-0.0, -1.0], x) == ""
    assert "zero of the other sign" in _judged("neg", [0.0, -1.0], [-0.0, -1.0], x)
    assert "nan instead of -1.0" in _judged("neg", [-0.0, NAN], [-0.0, -1.0], x)
    assert "inf instead of nan" in _judged("neg", [-0.0, INF], [-0.0, NAN], x)


def test_what_is_free_is_free_where_the_table_says_so_alone() -> None:
    assert _judged("kthvalue", [0.0], [-0.0], [0.0]) == ""
    assert "nan instead of 1.0" in _judged("sum", [NAN], [1.0], [1.0], "all 0")
    assert _judged("sum", [INF], [1.0], [1.0], "all max") == ""
    assert all(rule.reason and rule.free.words() for rule in RULES)


# -- values ------------------------------------------------------------------------------------------------------------
def test_a_fill_keeps_the_form_of_an_input() -> None:
    strided, expanded = torch.randn(6, 4)[::2], torch.randn(3, 1).expand(3, 4)
    assert overlaps(expanded)
    assert not overlaps(strided)
    for name, fill in fills((strided, expanded), elementwise=True):
        found = filled((strided, expanded), fill)
        if found is not None:
            assert [x.stride() for x in found] == [strided.stride(), expanded.stride()], name
    assert duplicate(strided).data_ptr() != strided.data_ptr()


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_pair_of_special_values_meets(dtype: str) -> None:
    values = table(DTYPES[dtype])
    a, b = values.clone(), values.clone()
    met = set()
    for name, fill in fills((a, b), elementwise=False):
        if name.startswith("mixed"):
            x, y = filled((a, b), fill) or (a, b)
            met |= {(str(p), str(q)) for p, q in zip(x.tolist(), y.tolist(), strict=True)}
    different = {str(v) for v in values.tolist()}
    assert met == {(p, q) for p in different for q in different}


# -- programs and results ----------------------------------------------------------------------------------------------
def test_variants_write_to_views_with_gaps() -> None:
    programs = {p.source: p for p in op_programs(entries()["neg"], torch.float32, 2, 1)}
    call = programs["variants"].call
    (result,) = call(*call.inputs) if isinstance(call(*call.inputs), tuple) else (call(*call.inputs),)
    assert result.shape[-1] == 3
    assert torch.equal(result[..., 1], -call.inputs[0])
    assert bool((result[..., 0] == 1).all())


def test_module_db_is_there() -> None:
    assert {"nn.Linear", "nn.Transformer", "nn.BatchNorm2d"} <= set(modules())


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    tally = Tally(entries()["neg"], "float32")
    tally.add("reference", "right")
    tally.add("special", "right")
    tally.add("special", "wrong", "1 instead of 2")
    rows = tally.rows(["reference", "special", "variants"])
    older = [{**rows[0], "torch": "2.11.0"}, *({**row, "torch": "2.12.0"} for row in rows[1:])]
    compact.write(tmp_path / "a.json", older, ["neg"])
    assert compact.read(tmp_path / "a.json") == older
    assert set(compact.runs(tmp_path / "a.json")) == {"float32"}
    compact.write(tmp_path / "a.json", [*compact.read(tmp_path / "a.json"), rows[1]], ["neg"])
    assert [r["torch"] for r in compact.read(tmp_path / "a.json")] == ["2.11.0", torch.__version__, "2.12.0"]


def test_the_page_says_what_was_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page.page_edges, "FILES", ((tmp_path / "none.json", ""),))
    text = page.page([], "2.0", dict.fromkeys(DTYPES, 1))
    assert "Not run: float32, float64, bfloat16" in text
