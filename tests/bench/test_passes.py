"""Each optimisation can be switched off by name, and bench/passes.py finds what it is worth on all kinds of cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mycc.compiler.options import ScheduleOptions
from mycc.compiler.schedule import schedule
from mycc.compiler.schedule.passes import CPU_PASSES, GPU_PASSES, check_names
from mycc.compiler.schedule.planning import CPU_PLANNING, OPTIONAL
from mycc.runtime.errors import CompileError

from ..helpers.evaluation import answer, difference, given_to
from ..helpers.programs import lowered

ROOT = Path(__file__).parents[2]
NAMES = sorted({p.name for p in (*CPU_PASSES, *GPU_PASSES) if not p.required} | OPTIONAL)


def test_names_are_those_of_passes() -> None:
    assert {p.name for p in CPU_PLANNING} >= OPTIONAL
    assert len(NAMES) > 30
    check_names(NAMES, OPTIONAL)
    with pytest.raises(CompileError, match="fuse-row"):
        check_names(["fuse-row"], OPTIONAL)


def test_each_pass_can_be_switched_off() -> None:
    """The program without it gives the same values."""
    x, w = torch.randn(6, 5, 24), torch.randn(24, 16)
    whole = lowered(lambda x, w: torch.softmax((x * 2 + 1) @ w, -1).amax(1), x, w)
    program, inputs = whole.program, given_to(whole, (x, w))
    expected = answer(program, inputs, {})
    for name in NAMES:
        got = answer(schedule(program, ScheduleOptions(off=(name,))).program, inputs, {})
        assert not difference(got, expected, 1e-5), name


@pytest.mark.slow  # a compile for each case and pass
def test_the_script_runs_over_all_kinds() -> None:
    run = subprocess.run(
        [sys.executable, "bench/passes.py", "--quick", "--list", "--passes", "inline,fuse-rows"],
        cwd=ROOT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    for kind in ("loops", "convolutions", "blocks", "models"):
        assert any(line.startswith(kind) for line in run.stdout.splitlines()), run.stdout
    assert any(line.startswith("fuse-rows") for line in run.stdout.splitlines())
