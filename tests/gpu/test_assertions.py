"""What models assert of their values, as Triton kernels: through the interpreter, and in the host program."""

from __future__ import annotations

import zipfile
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.runtime.errors import RunError

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter
from ..models.assertion_models import CASES, IDS, X, looked_up


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, interpreter: TritonInterpreter) -> None:
    case = CASES[name]
    program = program_of(capture(Call1(case.function), case.right[0]))
    for inputs, message in case.wrong:
        with pytest.raises(RunError, match=message):
            run_interpreted(program, interpreter, inputs)
    for inputs in case.right:
        (found,) = run_interpreted(program, interpreter, inputs)
        torch.testing.assert_close(found, case.function(*inputs))


def test_the_host_program(tmp_path: Path) -> None:
    """Triton compiles the kernels; each launch that may fail has its own message, in the order of the model."""
    path = mycc.compile(looked_up, (IDS, X), out=tmp_path / "a.pkg", target="cuda:sm_90")
    text = zipfile.ZipFile(path).read("src/cuda-sm_90/program.cpp").decode()
    rows = text[text.index("entry0_failures[] = {") :].splitlines()[1:]
    told = [row.strip() for row in rows[: rows.index("};")]]
    asserted = next(i for i, row in enumerate(told) if row.startswith('"ids: no such row (assertion_models.py:'))
    assert asserted < len(told) - 1
    assert told[-1].startswith('"index out of range in embedding')
    assert "call->status, i32(" in text
