"""The planning passes: their order, the fields that they make, and how plans are told."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.ir.plans.loop import LoopPlan
from mycc.compiler.ir.plans.text import plan_row, plan_text
from mycc.compiler.schedule.planning import CPU_PLANNING, GPU_PLANNING
from mycc.compiler.schedule.planning_pass import check_planning
from mycc.compiler.schedule.report import kernel_rows

from ..helpers.programs import scheduled

LARGE = torch.randn(1, dtype=torch.float32).expand(1 << 11, 1 << 11)  # its results are 16 MB


def test_every_pass_makes_a_field_from_fields_that_are_made() -> None:
    check_planning(CPU_PLANNING)
    check_planning(GPU_PLANNING)
    with pytest.raises(AssertionError, match="again"):
        check_planning([*CPU_PLANNING, CPU_PLANNING[0]])


def test_every_kernel_has_its_plan() -> None:
    s = scheduled(lambda a: torch.relu(a).sum(-1), torch.randn(8, 32))
    assert [k.node.writes() for k in s.kernels] == [n.writes() for n in s.program.nodes]
    assert all(isinstance(plan, LoopPlan) for plan in s.plans)
    assert [k.plan for k in s.kernels] == list(s.plans)


def test_the_schedule_and_the_manifest_tell_the_plans() -> None:
    s = scheduled(lambda a: a + 1, LARGE)
    (plan,) = s.plans
    assert isinstance(plan, LoopPlan)
    assert [b.name for b in plan.nontemporal] == ["out0"]
    assert plan_row(plan)["nontemporal"] == ["out0"]
    assert f"  plan {plan_text(plan)}\n" in str(s)
    assert kernel_rows(s, s.names)[0]["plan"] == plan_row(plan)
    assert [plan_row(None), plan_text(None), plan_text(LoopPlan())] == [{}, "", "form rows"]


def test_plans_are_told_in_few_words() -> None:
    looked_up = scheduled(lambda t, i: t[i], torch.randn(5000, 64), torch.randint(0, 5000, (300,)))
    (plan,) = looked_up.plans
    assert plan_row(plan)["row_prefetch"] == "16 rows ahead of inputs_0"
    assert plan_text(plan).startswith("form rows; vector j2; parallel i1; ")
    pooled = scheduled(lambda a: torch.nn.functional.max_pool2d(a, 3, 1), torch.randn(2, 4, 40, 64))
    assert "windows 3 along" in plan_text(pooled.plans[0])
