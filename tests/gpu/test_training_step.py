"""A training step for GPUs by Triton's interpreter, against torch: kernels that are joined, moved or split."""

from __future__ import annotations

import copy
from collections import Counter

import torch
from mycc.compiler.codegen.host.cuda_program import cuda_entry_view
from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.plans.gpu import MapPlan
from mycc.compiler.ir.plans.kernel import Kernel
from mycc.compiler.training.plan import plan_of
from mycc.compiler.training.request import TrainingRequest, capture_training
from mycc.compiler.training.steps import Settings
from torch import nn
from torch.nn import functional as F

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter


class Network(nn.Module):
    """A convolution with its norm, and two layers with a norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.one, self.norm, self.two = nn.Linear(8, 24), nn.LayerNorm(24), nn.Linear(24, 13)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = F.relu(self.bn(self.conv(x))).mean((2, 3))
        return self.two(self.norm(F.gelu(self.one(made), approximate="tanh")))  # type: ignore[no-any-return]


def test_a_step(interpreter: TritonInterpreter) -> None:
    torch.manual_seed(0)
    model, x, target = Network().train(), torch.randn(16, 3, 8, 8) + 3, torch.randint(0, 13, (16,))
    target[3] = -100
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    wanted = copy.deepcopy(model)
    request = TrainingRequest(
        model, (x,), {}, (target,), F.cross_entropy, plan_of(optimizer, model, F.cross_entropy),
        Settings(entries=("step",)), dtype="bf16",
    )  # fmt: skip
    (graph,) = capture_training(request, {"cuda"})
    program = program_of(graph)
    memory: dict[Buffer, torch.Tensor] = {}
    loss = run_interpreted(program, interpreter, graph.examples[: graph.n_arguments], memory)[0]

    other = torch.optim.SGD(wanted.parameters(), lr=0.5, momentum=0.9)
    with torch.autocast("cpu", torch.bfloat16):
        exact = F.cross_entropy(wanted(x), target)
    exact.backward()
    other.step()
    assert abs(float(loss) - float(exact.detach())) < 2e-2
    found = {buffer.name: values for buffer, values in memory.items() if buffer.kind == "state"}
    for name, own in (*wanted.named_parameters(), *wanted.named_buffers()):
        values = found[f"{name.replace('.', '_')}_1"].reshape(own.shape)
        assert (values - own).abs().max() <= 2e-2 * max(float(own.abs().max()), 1), name
    shared = [launch for launch in program.code.entries[0].launches if "def part0(" in launch.kernel.source]
    assert [len(launch.args) for launch in shared] == [2 * sum(map(rounds, program.schedule.kernels))]
    view = cuda_entry_view(program.code.entries[0], 0, Counter(), Counter())
    assert len(view.calls) < len(program.schedule.kernels)
    assert all(0 <= b.first <= b.last < len(view.calls) for b in view.formulas.buffers)


def rounds(kernel: Kernel) -> bool:
    """Whether a kernel shares its launch with its neighbours."""
    return isinstance(kernel.plan, MapPlan) and kernel.plan.together
