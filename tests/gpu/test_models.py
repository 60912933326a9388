"""Whole models as launches in order, through Triton's interpreter, against torch in float64."""

from __future__ import annotations

import copy

import pytest
from mycc.compiler.verify.compare import error

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter
from ..models import small_zoo

MODELS = ("mlp", "resnet50", "mobilenetv2", "vit", "bert", "gpt2", "llama", "whisper_enc")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", MODELS)
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
