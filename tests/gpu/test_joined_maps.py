"""Maps over the same elements as one kernel of a GPU: an optimizer's update of a large weight."""

from __future__ import annotations

import copy

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.state import share_state
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.nodes import Map
from mycc.compiler.ir.structured import Gemm
from torch import Tensor, nn

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter


class Update(nn.Module):
    """A gradient of a weight, and the update of the weight with its two moments in place."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        for name in ("weight", "mean", "square"):
            self.register_buffer(name, torch.rand(rows, columns) + 0.5)

    def forward(self, g: Tensor, x: Tensor) -> Tensor:
        of_weight = (g.T @ x).to(self.mean.dtype)
        self.mean.lerp_(of_weight, 0.1)
        self.square.mul_(0.9).addcmul_(of_weight, of_weight, value=0.1)
        self.weight.sub_(0.01 * self.mean / (self.square.sqrt() + 1e-8))
        return g.sum()


@pytest.mark.parametrize(("size", "kernels"), [((512, 640), 1), ((48, 40), 0)], ids=["large", "small"])
def test_an_update_with_moments(size: tuple[int, int], kernels: int, interpreter: TritonInterpreter) -> None:
    """One kernel for the moments and the weight where the product is large, else they are its epilogue."""
    torch.manual_seed(0)
    model, inputs = Update(*size), (torch.randn(64, size[0]).half(), torch.randn(64, size[1]).half())
    (graph,) = share_state([capture(copy.deepcopy(model), inputs)])
    program = program_of(graph)
    nodes = program.schedule.program.nodes
    updates = [n for n in nodes if isinstance(n, Map) and any(b.kind == "state" for b in n.writes())]
    assert len(updates) == kernels
    assert [len(n.stores) for n in updates] == [3] * kernels
    assert [len(n.stores) for n in nodes if isinstance(n, Gemm)] == [1 if kernels else 3]
    memory: dict[Buffer, Tensor] = {}
    run_interpreted(program, interpreter, inputs, memory)
    model.double()(*(t.double() for t in inputs))
    for buffer in program.schedule.program.state:
        name = next(change.name for change in graph.in_place if change.slot == buffer.slot)
        expected = dict(model.named_buffers())[name].reshape(-1)
        torch.testing.assert_close(memory[buffer].double(), expected, rtol=2e-3, atol=2e-3)
