"""Attention over keys and values in blocks, through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.ir.structured import Attention

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter
from ..schedule.test_kv_blocks import (
    heads_in_rows,
    keys,
    masked,
    of_one_head,
    of_whole_blocks,
    one_text,
    q,
    step,
    table,
    values,
)


@pytest.mark.parametrize("function", [step, masked, of_whole_blocks, one_text, heads_in_rows, of_one_head])
def test_read_through_the_table(function: Callable[..., Any], interpreter: TritonInterpreter) -> None:
    class Model(torch.nn.Module):
        def forward(self, q: Any, keys: Any, values: Any, table: Any) -> Any:
            return function(q, keys, values, table)

    negative = table.where(table < 7, table - len(keys)) if function is of_whole_blocks else table
    inputs = (q, keys, values, negative)
    program = program_of(capture(Model(), inputs))
    assert any(n.k_pages is not None for n in program.schedule.program.nodes if isinstance(n, Attention))
    (found,) = run_interpreted(program, interpreter, inputs, {})
    torch.testing.assert_close(found, function(*inputs), rtol=1e-4, atol=1e-5)
