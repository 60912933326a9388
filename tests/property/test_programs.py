"""A hundred random programs; `make nightly` explores thousands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .programs import SIZES, Input, Program

PROGRAMS = 40


def test_random_programs() -> None:
    """In a process of its own: what hypothesis draws for a seed depends on the modules that are imported."""
    command = [sys.executable, "-m", "tests.property.explore", "--seed", "20"]
    command += ["--programs", str(PROGRAMS), "--round", str(PROGRAMS * 3 // 4)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    right = re.search(r"^(\d+) of \d+ programs are right, 0 are wrong$", done.stdout, re.MULTILINE)
    assert right is not None, done.stdout
    assert int(right[1]) >= PROGRAMS


def test_a_program_is_a_model_file() -> None:
    program = Program(
        (Input("x0", ("n", 4), "float32"),), (("w0", (3, 4), "float32"),), ("v0 = F.linear(x0, self.w0)",), ("v0",)
    )
    space = program.load()
    (x,) = space["example_inputs"]
    assert space["model"](x)[0].shape == (SIZES[0]["n"], 3)
    assert list(space["dynamic_shapes"]["x0"]) == [0]
