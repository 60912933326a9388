"""Attention with long heads: two blocks for a row of keys, and values that are a part of the keys (the absorbed form of
latent attention). Through Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from mycc.compiler.capture import capture
from mycc.compiler.ir.plans.gpu import AttentionPlan
from torch import Tensor

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter


class _Latent(torch.nn.Module):
    """One head of keys for all of queries; values are the first elements of keys."""

    def __init__(self, first: int = 0, size: int = 512) -> None:
        super().__init__()
        self.first, self.size = first, size

    def forward(self, q: Tensor, keys: Tensor, seen: Tensor) -> Tensor:
        values = keys[..., self.first : self.first + self.size]
        mask = (torch.arange(keys.shape[2]) < seen[:, None])[:, None, None]
        return F.scaled_dot_product_attention(q, keys, values, mask, scale=0.05, enable_gqa=True)


def plan_of(program: object) -> AttentionPlan:
    (found,) = [x.plan for x in program.schedule.kernels if isinstance(x.plan, AttentionPlan)]  # type: ignore[attr-defined]
    return found


#: elements of keys, first and number of those that are values, queries, keys; head, rest and latent of the plan
CASES = {
    "latent": (576, 0, 512, 1, 70, (512, 64, True)),
    "latent, a prompt": (576, 0, 512, 20, 70, (512, 64, True)),
    "latent, many keys for few programs": (576, 0, 512, 1, 600, (512, 64, True)),
    "values elsewhere": (576, 64, 512, 1, 70, (512, 64, False)),
    "fewer values": (576, 0, 256, 1, 70, (512, 64, False)),
    "a short rest": (516, 0, 512, 3, 40, (512, 16, True)),
    "256 and 44": (300, 0, 256, 3, 40, (256, 64, True)),
    "one block is as long": (480, 0, 512 - 32, 1, 40, (512, 0, False)),
    "short heads": (96, 0, 64, 1, 40, (128, 0, False)),
    "the same for both": (128, 0, 128, 1, 40, (128, 0, True)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_rows_of_keys_in_two_blocks(name: str, dtype: torch.dtype, interpreter: TritonInterpreter) -> None:
    size, first, values, queries, keys, expected = CASES[name]
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, h, n, size, generator=draw).to(dtype) for h, n in ((4, queries), (1, keys)))
    inputs, model = (q, k, torch.tensor([keys, keys // 2])), _Latent(first, values)
    wanted = model(q.double(), k.double(), inputs[2])
    program = program_of(capture(model, inputs))
    plan = plan_of(program)
    assert (plan.head, plan.rest, plan.latent) == expected
    (found,) = run_interpreted(program, interpreter, inputs, {})
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(found.double(), wanted, **tolerance)


class _InBlocks(torch.nn.Module):
    def forward(self, q: Tensor, memory: Tensor, table: Tensor, seen: Tensor) -> Tensor:
        keys = memory[table].transpose(1, 2).flatten(2, 3)
        mask = (torch.arange(keys.shape[2]) < seen[:, None])[:, None, None]
        return F.scaled_dot_product_attention(q, keys, keys[..., :512], mask, scale=0.05, enable_gqa=True)


def test_latent_keys_in_blocks(interpreter: TritonInterpreter) -> None:
    """A cache in blocks of 16 rows, which is read where it lies, once."""
    draw = torch.Generator().manual_seed(1)
    q, memory = torch.randn(2, 4, 1, 576, generator=draw), torch.randn(9, 1, 16, 576, generator=draw)
    inputs = (q, memory, torch.tensor([[3, 1, 7], [8, 2, 5]]), torch.tensor([40, 17]))
    program = program_of(capture(_InBlocks(), inputs))
    plan = plan_of(program)
    assert (plan.rest, plan.latent) == (64, True)
    (found,) = run_interpreted(program, interpreter, inputs, {})
    torch.testing.assert_close(found, _InBlocks()(*inputs), rtol=1e-4, atol=1e-5)
