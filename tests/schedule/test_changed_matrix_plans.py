"""Plans of matrix kernels that are changed by hand: the code spells the change, and the values stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mycc.compiler import pipeline
from mycc.compiler.codegen.cpu.blocking import STRUCTS
from mycc.compiler.codegen.cpu.machine_header import render_machine
from mycc.compiler.ir.plans.matrix import EpiloguePlan, MatrixPlan, Packing
from mycc.compiler.machine.cpu import CPUS
from mycc.compiler.schedule import Schedule
from mycc.compiler.schedule.matrix.matrix_plan import ATTENTION_BLOCKING, CONV_BLOCKING, GEMM_BLOCKING
from mycc.runtime.inspect import inspect_package, plan_text
from torch import nn

from ..helpers.kernel_numbers import constants
from ..helpers.programs import Call1

KERNELS = Path(__file__).parents[2] / "kernels"
Change = Callable[[MatrixPlan], MatrixPlan]


def cut(**values: int) -> Change:
    """Another blocking."""
    return lambda plan: replace(plan, blocking=replace(plan.blocking, **values))  # type: ignore[arg-type]


def test_kernels_have_the_blocking_of_the_plan_by_themselves() -> None:
    """So generated code sets what differs alone. Each struct is found, with each of its fields."""
    headers = "".join(p.read_text() for p in KERNELS.rglob("*.h"))
    numbers = constants(render_machine("x86-64-v3"))
    for kind, (struct, own) in STRUCTS.items():
        (body,) = re.findall(rf"struct {struct} \{{(.*?)\}};", headers, re.DOTALL)
        written = {name: int(numbers[value]) for name, value in re.findall(r"int64_t (\w+) = (k\w+);", body)}
        assert written == {f.name: getattr(own, f.name) for f in fields(kind)}
    assert [own for _, own in STRUCTS.values()] == [GEMM_BLOCKING, CONV_BLOCKING, ATTENTION_BLOCKING]


A, B = torch.randn(70, 700), torch.randn(700, 48)
LINEAR, CONV = nn.Linear(700, 48), nn.Conv2d(48, 32, 3, padding=1)
IMAGE, Q = torch.randn(1, 48, 20, 20), torch.randn(1, 2, 90, 32)


class Product(nn.Module):
    """A linear layer or a convolution with weights of the package."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *x: torch.Tensor) -> Any:
        return self.layer(*x)


@pytest.mark.parametrize(
    ("module", "inputs", "algorithm", "change", "new"),
    [
        (LINEAR, (A,), "gemm", cut(depth=128), "GemmTuning tuning;\n  tuning.depth = tuning_depth;"),
        (LINEAR, (A,), "gemm", lambda p: replace(p, epilogue=EpiloguePlan()), ""),
        (LINEAR, (A,), "gemm", lambda p: replace(p, streamed=True), "args.weight_bytes ="),
        (Call1(torch.matmul), (A, B), "gemm", cut(together=1, depth=64), "tuning.together = tuning_together;"),
        (CONV, (IMAGE,), "transposing", cut(depth=96, pixels=64), "ConvTuning tuning;"),
        (Call1(F.scaled_dot_product_attention), (Q, Q, Q), "attention", cut(key_block=32), "AttentionTuning tuning;"),
    ],
)
def test_a_changed_plan_changes_the_code_and_keeps_the_values(
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    algorithm: str,
    change: Change,
    new: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, texts = pipeline.schedule, []
    model = Product(module).eval()
    expected = Product(module).double()(*(x.double() for x in inputs)).detach()
    Product(module).float()

    def changed(*args: object, **how: object) -> Schedule:
        plans: Schedule = own(*args, **how)  # type: ignore[arg-type]
        kernels = [replace(k, plan=change(k.plan)) if isinstance(k.plan, MatrixPlan) else k for k in plans.kernels]
        assert [k.plan.algorithm for k in plans.kernels if isinstance(k.plan, MatrixPlan)] == [algorithm]
        return replace(plans, kernels=tuple(kernels))

    for name, schedule in (("own", own), ("changed", changed)):
        monkeypatch.setattr(pipeline, "schedule", schedule)
        package, dump = tmp_path / f"{name}.pkg", tmp_path / name
        mycc.compile(
            model, inputs, out=package, dump=dump, target="cpu", verify=False, options={"codegen.winograd": "off"}
        )
        texts.append((dump / "05-codegen.txt").read_text())
        got = np.asarray(mycc.load(package)(*(x.numpy() for x in inputs)))
        np.testing.assert_allclose(got, expected.numpy(), rtol=2e-5, atol=2e-5)
    before, after = texts
    assert "Tuning tuning;" not in before
    assert before != after
    assert new in after


def test_plans_are_shown(tmp_path: Path) -> None:
    """In the dump, as JSON and in short."""
    package = tmp_path / "m.pkg"
    mycc.compile(nn.Linear(700, 48), (A,), out=package, dump=tmp_path / "dump", target="cpu", verify=False)
    text = (tmp_path / "dump" / "04-schedule.txt").read_text()
    assert "plan algorithm gemm; " in text
    assert "blocking (depth 256; together 4; group bytes 24576; block bytes 196608)" in text
    assert "x86-64-v3 6x16" in text
    (row,) = inspect_package(package)["entry_points"][0]["kernels"]
    assert row["plan"]["algorithm"] == "gemm"
    assert row["plan"]["blocking"]["depth"] == 256
    assert [t.split()[0] for t in row["plan"]["tiles"]] == list(CPUS)
    assert row["plan"]["tasks"] == ["columns", "rows"]
    assert row["plan"]["epilogue"]["adds"].endswith("= sum + w_bias")
    assert plan_text(row) == "algorithm gemm, tasks columns rows, depth 256"
    assert MatrixPlan().packing is Packing.COMPILE_TIME
