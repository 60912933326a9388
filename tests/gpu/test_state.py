"""State on a GPU: caches written in place, running statistics, arguments that change, through Triton's interpreter."""

from __future__ import annotations

import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.state import share_state

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 1, 2, 16, 8))
        self.register_buffer("filled", torch.tensor([3]))
        self.register_buffer("mean", torch.full((8,), 0.5))

    def forward(self, x, q):
        places = self.filled + torch.arange(x.shape[2])
        self.keys[1].index_copy_(2, places, x)
        self.keys[0, :, :, 2:4] = x[:, :, :2]
        self.mean.mul_(0.9).add_(x.mean((0, 1, 2)), alpha=0.1)
        seen = torch.arange(16) <= places[:, None]
        self.filled += x.shape[2]
        q.add_(1)
        return torch.nn.functional.scaled_dot_product_attention(q, self.keys[1], self.keys[1], seen) + self.mean


def test_a_cache(interpreter: TritonInterpreter) -> None:
    torch.manual_seed(0)
    model, x, q = Cache(), torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8)
    (graph,) = share_state([capture(model, (x, q))])
    program = program_of(graph)
    assert [launch.kernel.symbol.startswith("scatter") for launch in program.code.entries[0].launches].count(True) == 1
    memory = {}
    (found,) = run_interpreted(program, interpreter, (x, q), memory)
    wanted = model(x, q)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    planned = program.schedule.program
    for buffer in planned.state:
        name = next(change.name for change in graph.in_place if change.slot == buffer.slot)
        value = dict(model.named_buffers())[name]
        torch.testing.assert_close(memory[buffer], value.reshape(-1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(memory[planned.inputs[1]], q.reshape(-1))
