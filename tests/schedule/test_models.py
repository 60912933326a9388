"""What the schedule must reach on models: kernels, floats written, memory."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.ir.dtypes import DTYPES
from mycc.compiler.ir.structured import Attention, Conv
from mycc.compiler.ir.verify import verify_program
from mycc.compiler.lower import lower
from mycc.compiler.schedule import Schedule, schedule
from mycc.compiler.schedule.memory.laws import verify_memory
from mycc.compiler.schedule.memory.plan import ALIGNMENT, best_placement
from torch import nn
from torch.export import Dim

from ..helpers.programs import scheduled

LAYERS = 2


class Encoder(nn.Module):
    """The last hidden state of a BERT of two layers at full width."""

    def __init__(self) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        self.bert = transformers.BertModel(transformers.BertConfig(num_hidden_layers=LAYERS, vocab_size=1000))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.bert(ids, attention_mask=mask).last_hidden_state


@cache
def bert(dynamic: bool) -> Schedule:
    ids, mask = torch.randint(0, 1000, (2, 48)), torch.ones(2, 48, dtype=torch.long)
    dims = {0: Dim("batch", min=1, max=16), 1: Dim("seq", min=1, max=512)}
    graph = capture(Encoder().eval(), (ids, mask), None, (dims, dims) if dynamic else None)
    result = schedule(lower(run_graph_passes(graph)).program)
    verify_program(result.program, "scheduling")
    verify_memory(result.program, result.memory)
    return result


@pytest.mark.parametrize("dynamic", [False, True])
def test_bert_layer(dynamic: bool) -> None:
    nodes = bert(dynamic).program.nodes
    start, end = (i for i, n in enumerate(nodes) if isinstance(n, Attention))
    layer = nodes[start:end]  # from one attention to the next: as many kernels as a layer has
    assert len(layer) <= 8
    written = sum(b.size.evaluate({"batch": 2, "seq": 48}) for n in layer for b in n.writes())
    assert written <= 12 * 2 * 48 * 768


def test_bert_writes_no_scores() -> None:
    scores = 2 * 12 * 48 * 48
    assert all(b.size.constant != scores for n in bert(False).program.nodes for b in n.writes())


class Block(nn.Module):
    """A residual block as ResNet has it, behind a stem."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = (
            nn.Conv2d(3, 16, 1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.Conv2d(16, 16, 3, padding=1),
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norms[0](self.stem(x)))
        h = torch.relu(self.norms[1](self.one(x)))
        h = torch.relu(self.norms[2](self.two(h)) + x)
        return self.head(h.mean((2, 3)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_residual_block(dynamic: bool) -> None:
    s = scheduled(lambda block, x: block(x), torch.randn(2, 3, 8, 8), parts=(Block(),), dynamic=dynamic)
    convs = [n.origin.ops for n in s.program.nodes if isinstance(n, Conv)]
    assert convs == [
        ("aten.conv2d", "aten.batch_norm", "aten.relu"),
        ("aten.conv2d", "aten.batch_norm", "aten.relu"),
        ("aten.conv2d", "aten.batch_norm", "aten.add", "aten.relu"),
    ]
    assert len(s.program.nodes) == 6  # the input's layout, three convolutions, the mean, the head


def test_memory_of_bert() -> None:
    plan = bert(False).memory
    assert plan.live
    assert plan.arena <= 1.15 * plan.live


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (1, 17), (7, 128), (16, 300)])
def test_memory_of_bert_at_other_sizes(batch: int, seq: int) -> None:
    """The runtime places dynamic buffers by the same plan, tested against this one in C++."""
    s = bert(True)
    spans = [(t.first, t.last) for t in s.memory.lifetimes]
    sizes = [
        t.buffer.size.evaluate({"batch": batch, "seq": seq}) * DTYPES[t.buffer.dtype].size for t in s.memory.lifetimes
    ]
    sizes = [-(-n // ALIGNMENT) * ALIGNMENT for n in sizes]
    _, arena = best_placement(spans, sizes)
    live = max(
        sum(n for n, (a, b) in zip(sizes, spans, strict=True) if a <= i <= b) for i in range(len(s.program.nodes))
    )
    assert arena <= 1.15 * live
