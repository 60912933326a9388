"""Rows that an index names, perhaps twice, are read before the first is written: of arguments, buffers, intermediates.

`y[i] += 1` reads, adds and writes the same memory; as one loop it would count a row that is named twice twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.capture.state import share_state

from ..helpers.device_programs import program_of, run_interpreted
from ..helpers.triton_interpreter import TritonInterpreter


def _everywhere(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return i[:, None].expand(-1, y.shape[1])


def added(i, y):
    y[i] += 1


def sums(i, y):
    y[i] = y[i] * 2 + y[i].sum()


def columns(i, y):
    y[:, i] *= 2


def accumulated(i, y):
    y.index_put_((i,), y[i] * 0.5, accumulate=True)


def scatter_added(i, y):
    y.scatter_add_(0, _everywhere(i, y), y[i])


def index_added(i, y):
    y.index_add_(0, i, y[i] + 1)


def index_copied(i, y):
    y.index_copy_(0, i, y[i] + 1)


def scattered(i, y):
    y.scatter_(0, _everywhere(i, y), y[i] + 1)


def largest(i, y):
    y.scatter_reduce_(0, _everywhere(i, y), y[i] * 2, "amax")


def moving_average(i, y):
    y[i] = 0.9 * y[i] + 0.1 * torch.arange(4.0)[:, None]


def shifted(i, y):
    y[1:] = y[:-1] * 2


def transposed(i, y):
    y[:3, :3] = y[:3, :3].t() + 1


def masked(i, y):
    y.masked_scatter_(y > 0, y.flip(0))


def places_themselves(i, y):
    i[i.clone()] -= 1
    y[i] += 1


def intermediate(i, y):
    z = y + 1
    z[i] += z[i].sin()
    z[:, i] *= 2
    return z


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counts", torch.zeros(4))
        self.register_buffer("whole", torch.zeros(4, dtype=torch.int32))

    def forward(self, i, y):
        self.counts[i] += 1
        self.whole[i] += 1

        def body(n, total):
            self.counts[i] *= 0.5
            return n + 1, total + self.counts[i].sum()

        start = (torch.zeros((), dtype=torch.int64), torch.zeros(()))
        return torch.while_loop(lambda n, total: n < 2, body, start)[1] + self.whole.sum()


MODELS: dict[str, Callable] = {
    f.__name__: f
    for f in (added, sums, columns, accumulated, scatter_added, index_added, index_copied, scattered, largest,
              moving_average, shifted, transposed, masked, places_themselves, intermediate)
}  # fmt: skip
PLACES = ([0, 0, 0, 0], [1, 1, 3, 3], [3, 0, 3, 2])


def first_values() -> torch.Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    entries = {name: (model, (torch.tensor([0, 2, 1, 3]), first_values())) for name, model in MODELS.items()}
    entries["counts"] = (Counts(), (torch.tensor([0, 2, 1, 3]), first_values()))
    return mycc.compile(entries, out=tmp_path_factory.mktemp("rows") / "rows.pkg")


@pytest.mark.parametrize("name", MODELS)
def test_as_eager(package: Path, name: str) -> None:
    entry = mycc.load(package).entry(name)
    for places in PLACES:
        mine, eagers = ((torch.tensor(places), first_values()) for _ in range(2))
        found, wanted = entry(*mine), MODELS[name](*eagers)
        torch.testing.assert_close(mine, eagers)
        if wanted is not None:
            torch.testing.assert_close(found, wanted)


def test_buffers(package: Path) -> None:
    made, model = mycc.load(package), Counts()
    for places in PLACES:
        i, y = torch.tensor(places), first_values()
        with torch.no_grad():
            torch.testing.assert_close(made.entry("counts")(i, y), model(i, y))
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(torch.as_tensor(made.state[name]), buffer)


@pytest.mark.parametrize("name", ["added", "columns", "scattered", "transposed", "places_themselves"])
def test_on_a_gpu(name: str, interpreter: TritonInterpreter) -> None:
    """Through Triton's interpreter."""
    mine, eagers = ((torch.tensor(PLACES[1]), first_values()) for _ in range(2))
    (graph,) = share_state([capture_request(CaptureRequest(MODELS[name], mine))])
    program = program_of(graph)
    memory: dict = {}
    run_interpreted(program, interpreter, mine, memory)
    MODELS[name](*eagers)
    for buffer, wanted in zip(program.schedule.program.inputs, eagers, strict=True):
        if buffer.root in memory:
            torch.testing.assert_close(memory[buffer.root], wanted.reshape(-1))
