"""A hundred random programs; `make nightly` explores thousands."""

from __future__ import annotations

from pathlib import Path

from .explore import run_round
from .programs import SIZES, Input, Program

PROGRAMS = 100
SEED = 20


def test_random_programs(tmp_path: Path) -> None:
    found = run_round(SEED, PROGRAMS, tmp_path)
    assert not found.failures, "\n\n".join(found.failures)
    assert found.right >= 0.8 * PROGRAMS, found.refused


def test_a_program_is_a_model_file() -> None:
    program = Program(
        (Input("x0", ("n", 4), "float32"),), (("w0", (3, 4), "float32"),), ("v0 = F.linear(x0, self.w0)",), ("v0",)
    )
    space = program.load()
    (x,) = space["example_inputs"]
    assert space["model"](x)[0].shape == (SIZES[0]["n"], 3)
    assert list(space["dynamic_shapes"]["x0"]) == [0]
