"""The data of `mycc explain`: kernels lead to operators, lines and sources; memory and comparisons hold together."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import mycc
import pytest
from mycc.compiler.explain.api import explain_package
from mycc.compiler.explain.code import _arguments, _blocks
from mycc.compiler.explain.report import report

ROOT = Path(__file__).parents[2]


def kernels(data: dict) -> list[dict]:
    (facts,) = data["entry_points"][0]["targets"].values()
    return facts["kernels"]


def test_every_kernel_leads_to_its_operators_lines_and_source(package: Path) -> None:
    data = report(package)
    (entry,) = data["entry_points"]
    nodes = {node["name"]: node for node in entry["graph"]["nodes"]}
    for kernel in kernels(data):
        assert kernel["nodes"]
        assert {nodes[name]["op"].removesuffix(".Tensor").removesuffix(".int") for name in kernel["nodes"]} == set(
            kernel["ops"]
        )
        files = {file for name in kernel["nodes"] for file, _ in nodes[name]["places"]}
        assert [data["sources"][file]["name"] for file in files] == ["net.py"]
        assert f"void {kernel['name']}(" in data["code"][kernel["code"]]["text"]
    up = next(k for k in kernels(data) if "aten.gelu" in k["ops"])
    assert [nodes[n]["module"] for n in up["nodes"]] == ["first.up", "first"]
    assert {line for n in up["nodes"] for _, line in nodes[n]["places"]} == {12}
    assert entry["graph"]["modules"]["first"] == "Half"
    assert {"name": "x0", "value": "input x"} in up["arguments"]
    assert "weight first_up_bias" in [a["value"] for a in up["arguments"]]


def test_lines_come_from_the_file_that_was_compiled(package: Path, tmp_path: Path) -> None:
    (file,) = report(package)["sources"]
    assert file["state"] == "same"
    assert "# line 12" in file["parts"][0][1].splitlines()[11]
    alone = Path(shutil.copy(package, tmp_path / "alone.pkg"))
    assert report(alone)["sources"][0]["state"] == "missing"
    (tmp_path / "net.py").write_text("import torch\n")
    assert report(alone)["sources"][0]["state"] == "changed"
    assert report(alone, [package.parent])["sources"][0]["state"] == "same"


def test_formulas_are_evaluated_at_the_sizes_that_were_asked_for(package: Path) -> None:
    small, large = (report(package, sizes={"rows": rows}) for rows in (8, 80))
    assert small["entry_points"][0]["sizes"] == {"rows": 8}
    gemms = [k for k in kernels(small) if k["kind"] == "gemm"]
    assert [k["flops"] for k in gemms][:2] == [8 * 64 * 256 * 2] * 2
    for a, b in zip(gemms, (k for k in kernels(large) if k["kind"] == "gemm"), strict=True):
        assert b["flops"] == 10 * a["flops"]


def test_buffers_that_live_at_once_lie_apart(package: Path) -> None:
    (facts,) = report(package, sizes={"rows": 40})["entry_points"][0]["targets"].values()
    memory = facts["memory"]
    buffers = memory["buffers"]
    assert memory["dynamic"]
    assert any(b["bytes"] == 40 * 256 * 4 for b in buffers)
    assert max(b["offset"] + b["bytes"] for b in buffers) == memory["arena"] >= memory["live"]
    for i, a in enumerate(buffers):
        for b in buffers[:i]:
            together = a["first"] <= b["last"] and b["first"] <= a["last"]
            apart = a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"]
            assert apart or not together


def test_the_report_fits_its_schema(package: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs/schemas/explain-1.json").read_text())
    explanation = explain_package(package, measure=True, against=package)
    jsonschema.validate(json.loads(explanation.json()), schema)
    timed = kernels(explanation.data)
    assert sum(k["share"] for k in timed) == pytest.approx(1)
    broken = json.loads(explanation.json()) | {"code": [{}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_a_package_beside_one_without_fusions_tells_what_differs(package: Path, source: Path, tmp_path: Path) -> None:
    from mycc.compiler.capture.source import load_source

    loaded = load_source(str(source))
    plain = tmp_path / "plain.pkg"
    mycc.compile(loaded.model, loaded.args, out=plain, options={"schedule.fuse": False}, verify=False)
    against = explain_package(package, against=plain).data["against"]
    facts = {f["name"]: f for f in against["facts"]}
    assert facts["kernels"]["this"] < facts["kernels"]["other"]
    (entry,) = against["entry_points"]
    fused = next(row for row in entry["kernels"] if row["ops"] == ["aten.linear", "aten.gelu"])
    assert (fused["this"], fused["other"]) == (1, 0)
    assert report(plain)["package"]["options"] == {"verify": False, "schedule.fuse": False}


def test_a_package_without_sources_is_explained_by_its_manifest(source: Path, tmp_path: Path) -> None:
    from mycc.compiler.capture.source import load_source

    loaded = load_source(str(source))
    out = tmp_path / "bare.pkg"
    mycc.compile(loaded.model, loaded.args, out=out, options={"codegen.sources": False}, verify=False)
    data = report(out)
    assert data["entry_points"][0]["graph"] is None
    assert all(k["code"] is None and k["sources"] for k in kernels(data))
    explain_package(out).html()


def test_explain_takes_paths_loaded_packages_and_models(package: Path) -> None:
    by_path, loaded = mycc.explain(package), mycc.explain(mycc.load(package))
    assert by_path.data["package"] == loaded.data["package"]
    refused = sum(not f["done"] for f in by_path.data["entry_points"][0]["fusions"])
    assert f"{refused} refused" in str(by_path)
    assert refused >= 1
    with pytest.raises(mycc.InputError, match="not a int"):
        mycc.explain(3)
    with pytest.raises(mycc.InputError, match="bytes"):
        mycc.explain(mycc.load(package.read_bytes()))
    with pytest.raises(mycc.InputError, match="no options"):
        mycc.explain(package, target="cpu")


def test_models_and_compiled_callables_are_explained_too() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    made = mycc.explain(model, torch.randn(2, 8), verify=False)
    assert made.data["package"]["options"] == {"verify": False}
    assert str(made).splitlines()[1].endswith(": 1 kernel, 1 fusion, 0 refused")
    compiled = mycc.explain(torch.compile(lambda x: x.relu() * 2, backend="mycc"), torch.randn(4))
    assert str(compiled).startswith("1 graph, 0 breaks")


def test_a_loaded_package_and_its_explanation_show_themselves_in_notebooks(package: Path) -> None:
    model = mycc.load(package)
    card = model._repr_html_()
    assert "forward(x: f32[rows, 64])" in card.replace("&gt;", ">")
    assert f"{len(kernels(report(package)))} in forward" in card
    assert "against float64" in card
    frame = mycc.explain(model)._repr_html_()
    assert frame.startswith("<iframe ")
    assert 'srcdoc="&lt;!doctype html&gt;' in frame
    assert "<script" not in frame


def test_exports_are_what_other_tools_read(package: Path) -> None:
    explanation = mycc.explain(package)
    events = [e for e in explanation.trace()["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in events] == [k["name"] for k in kernels(explanation.data)]
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(events))
    dot = explanation.dot()
    assert '"linear" -> "gelu";' in dot
    assert "weight" not in dot


def test_units_of_generated_code_are_cut_at_their_kernels() -> None:
    unit = (
        "#include <x>\nnamespace mycc_model {\nusing namespace mycc;\n\n// linear  a.py:1\nstruct e {\n};\n\n"
        "void one(const float *x0) {\n}\n\n// about the next\n// gelu  a.py:2\nvoid two(float *y0) {\n}\n\n"
        "} // namespace mycc_model\n"
    )
    found = dict(_blocks(unit))
    assert list(found) == ["one", "two"]
    assert found["one"].startswith("// linear  a.py:1\nstruct e")
    assert found["two"] == "// about the next\n// gelu  a.py:2\nvoid two(float *y0) {\n}\n"
    assert _arguments("host, (const float *)(w + f(1, 2)), x") == ["host", "(const float *)(w + f(1, 2))", "x"]
