"""Whole models as launches in order, through Triton's interpreter, against torch in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from mycc.compiler.verify.compare import error

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter
from ..models import small_zoo


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", small_zoo.NAMES)
def test_model_against_float64(name: str, dtype: str, interpreter: TritonInterpreter) -> None:
    module, inputs = getattr(small_zoo, name)()
    if dtype == "f16":  # the weights as the program has them
        module = module.half()
        inputs = tuple(x.half() if x.is_floating_point() else x for x in inputs)
    program = device_program(module, inputs)
    found = run_interpreted(program, interpreter, inputs)
    wide = copy.deepcopy(module).double()
    wanted = wide(*(x.double() if x.is_floating_point() else x for x in inputs))
    own = module(*inputs)
    assert error(found[0], wanted) <= 1.2 * error(own, wanted) + 2e-6


@pytest.mark.parametrize("name", ["bert", "llama", "resnet50"])
def test_dynamic_sizes(name: str, interpreter: TritonInterpreter) -> None:
    """One program at sizes other than those it was made with, the smallest among them."""
    module, (example,) = getattr(small_zoo, name)()
    text = name in small_zoo.TEXT
    sizes = {0: torch.export.Dim("batch", min=1, max=8)} | ({1: torch.export.Dim("seq", min=1, max=32)} if text else {})
    program = device_program(module, (example,), (sizes,))
    wide = copy.deepcopy(module).double()
    for batch, sequence in ((1, 1), (3, 17)):
        x = example[:1].expand(batch, *example.shape[1:]).contiguous()
        if text:
            x = torch.randint(0, small_zoo.VOCABULARY, (batch, sequence))
        found = run_interpreted(program, interpreter, (x,))
        wanted = wide(x if text else x.double())
        assert error(found[0], wanted) <= 1.2 * error(module(x), wanted) + 2e-6
