"""Places of the maxima of pools through Triton's interpreter: see tests/ops/pool_samples.py."""

from __future__ import annotations

import pytest
import torch

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter
from ..ops.pool_samples import OF_FLOATS, POOLS, inputs


@pytest.mark.parametrize(
    "names", [("2-d dilated", "adaptive 2-d"), pytest.param(("2-d", "3-d"), marks=pytest.mark.slow)], ids=" and ".join
)
def test_places(names: tuple[str, ...], interpreter: TritonInterpreter) -> None:
    pools = {name: (POOLS | OF_FLOATS)[name] for name in names}

    def every(x: torch.Tensor) -> list[torch.Tensor]:
        return [t for f in pools.values() for t in f(x)]

    values = inputs(torch.float32)
    program = device_program(Call1(every), (values[0],))
    for x in values:
        for got, want in zip(run_interpreted(program, interpreter, [x]), every(x), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
