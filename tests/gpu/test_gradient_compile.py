"""The kernels of attention's gradient compiled without a GPU: no spills, and shared memory that the chip has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.build.cache import default_folder
from mycc.compiler.build.compile import BuildOptions
from mycc.compiler.build.triton_compile import compile_kernels
from mycc.compiler.codegen.cuda.generate import launches_of
from mycc.compiler.codegen.cuda.kernel import TritonKernel
from mycc.compiler.codegen.cuda.probe_gradient import GradientProbe, gradient_probe
from mycc.compiler.ir.index import Size, of
from mycc.compiler.ir.plans.gpu import GradientPlan
from mycc.compiler.ir.plans.tiles import AttentionTile
from mycc.compiler.machine.gpu import DEVICES
from mycc.compiler.machine.targets import parse_targets
from mycc.compiler.schedule.passes import Context
from mycc.compiler.schedule.planning import plan_kernel
from mycc.compiler.schedule.remarks import Remarks
from torch import nn

from ..conftest import Golden

rows = of(Size("rows", 1, 4096))
FORMS: dict[str, GradientProbe] = {
    "whole": gradient_probe(32, 12, 128, 128, 64, "bf16", causal=True, dropout=True),
    "whole_128": gradient_probe(2, 8, 60, 60, 128, "f16", kv_heads=2),
    "apart": gradient_probe(4, 16, 2048, 2048, 64, "bf16", causal=True),
    "apart_128": gradient_probe(4, 16, rows, rows, 128, "bf16", causal=True, kv_heads=4, dropout=True),
    "apart_256": gradient_probe(1, 8, 1024, 1024, 256, "bf16", mask=True),
    "apart_f32": gradient_probe(4, 12, 197, 197, 64, "f32", dropout=True),
    "apart_128_f32": gradient_probe(1, 8, 512, 512, 128, "f32", causal=True),
}


def kernels(form: str, capability: int = 90) -> list[TritonKernel]:
    launches = launches_of(FORMS[form].node, DEVICES[capability], form)
    return [launch.kernel.named(f"{form}_{i}") for i, launch in enumerate(launches)]


@pytest.mark.parametrize("capability", sorted(DEVICES))
def test_forms_compile_without_spills(capability: int) -> None:
    forms = FORMS if capability == 90 else ("whole", "apart_128", "apart_f32")
    (target,) = parse_targets(f"cuda:sm_{capability}")
    found = [kernel for form in forms for kernel in kernels(form, capability)]
    images = compile_kernels(found, target, BuildOptions(cache_dir=default_folder())).images
    spills = {i.symbol: i.facts["spills"] for i in images}
    assert capability != 90 or max(spills.values()) <= 32, spills
    assert all(i.facts["shared"] <= DEVICES[capability].shared for i in images)


@pytest.mark.parametrize("form", ["whole", "apart_128"])
def test_text(form: str, golden: Golden) -> None:
    golden("\n\n".join(kernel.source for kernel in kernels(form)))


def test_heads_of_512_have_a_plan_that_fits() -> None:
    for dtype in ("bf16", "f32"):
        plan = plan_kernel(gradient_probe(1, 2, 64, 64, 512, dtype).node, Context(Remarks(), DEVICES[80])).plan
        assert isinstance(plan, GradientPlan)
        assert [part.form for part in plan.parts] == ["queries", "keys"]


def test_blocks_are_facts_of_the_machine() -> None:
    device = DEVICES[90]
    none = replace(device, gradients=replace(device.gradients, whole_steps=0))
    for chip, forms in ((device, ["whole"]), (none, ["queries", "keys"])):
        plan = plan_kernel(FORMS["whole"].node, Context(Remarks(), chip)).plan
        assert isinstance(plan, GradientPlan)
        assert [part.form for part in plan.parts] == forms


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_warpgroups_share_no_rows_of_narrow_products(dtype: str) -> None:
    """Triton's code for 64 x 16 results of float32 and 8 warps reads past the end of shared memory."""
    device = DEVICES[90]
    wide = ((1 << 10, AttentionTile(64, 64, 8, 1)),)
    facts = replace(
        device.gradients, whole_steps=0, half_queries=wide, half_keys=wide, plain_keys=wide, float_queries=wide,
        float_keys=wide,
    )  # fmt: skip
    for queries, keys, head, warps in (
        (64, 16, 64, (4, 8)),
        (16, 64, 64, (8, 4)),
        (64, 64, 16, (4, 4)),
        (64, 64, 64, (8, 8)),
    ):
        node = gradient_probe(1, 2, queries, keys, head, dtype).node
        plan = plan_kernel(node, Context(Remarks(), replace(device, gradients=facts))).plan
        assert isinstance(plan, GradientPlan)
        assert tuple(part.warps for part in plan.parts) == warps


class Layer(nn.Module):
    """Attention with dropout between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(32, 96), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.inner(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        return self.outer(y.transpose(1, 2).flatten(2))


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


@pytest.mark.parametrize("dtype", [None, "bf16"])
def test_a_training_package(dtype: str | None, tmp_path: Path) -> None:
    """No kernel of a step has a softmax of its own, and the scores have no memory."""
    model, path = Layer(), tmp_path / "m.pkg"
    given: tuple[Any, ...] = (torch.randn(8, 256, 32),)
    mycc.compile_training(
        model, given, targets=(torch.randint(0, 5, (8, 256)),), loss=loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), out=path, entries=["gradients"],
        target="cuda:sm_90", dtype=dtype, verify=False,
    )  # fmt: skip
    (target,) = mycc.explain(path).data["entry_points"][0]["targets"].values()
    names = [kernel["name"] for kernel in target["kernels"]]
    assert sum("attention_gradient_" in name and name.startswith("attention") for name in names) == 2
    assert not any("softmax_backward" in name and "log_softmax" not in name for name in names)
    scores = 8 * 2 * 256 * 256
    assert target["memory"]["arena"] < 3 * scores  # of bools, once
