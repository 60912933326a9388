"""The entry points that draw tokens, by the kernels that a GPU runs: through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.generation.draws import CANDIDATES, draw_entries

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter

VOCABULARY = 1536


@pytest.mark.parametrize("name", ["draw", "draw_nucleus", "candidates"])
def test_as_torch_computes_them(name: str, interpreter: TritonInterpreter) -> None:
    module, inputs, _, _ = draw_entries(VOCABULARY, 3, None)[name]
    logits = inputs[0] * torch.tensor([[1.0], [4.0], [0.0]])
    given = (logits, *inputs[1:])
    program = program_of(capture(module, given))
    order = torch.sort(logits, dim=-1, descending=True, stable=True)  # torch's topk gives equal ones in any order
    wanted = tuple(x[:, :CANDIDATES] for x in order) if name == "candidates" else module(*given)
    found = run_interpreted(program, interpreter, given, {})
    for f, w in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert torch.equal(f, w)
