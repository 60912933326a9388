"""Operators of the user's own that write to their arguments: lowerings, C++ kernels, Triton kernels, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.lower.core.builder import call, number
from torch import nn
from torch.export import Dim

from ..helpers.device_programs import device_program, run_interpreted
from ..helpers.programs import Call1
from ..helpers.triton_interpreter import TritonInterpreter

ROWS = Dim("rows", min=1, max=64)
MOMENTUM = """
#include "mycc/custom.h"

// m = 0.9 m + g, v += g for each v; gives p - lr * m. outputs: p, m, v...; inputs: p, g
extern "C" void momentum(const mycc_host *host, const mycc_tensor *outputs, const mycc_tensor *inputs,
                         const mycc_number *numbers) {
  const float *p = mycc::data<const float>(inputs[0]), *g = mycc::data<const float>(inputs[1]);
  float *result = mycc::data<float>(outputs[0]), *m = mycc::data<float>(outputs[1]);
  if (numbers[0].real < 0) return mycc::fail(host, "the learning rate of momentum is negative");
  for (int64_t i = 0; i < mycc::elements(inputs[0]); ++i) {
    m[i] = 0.9f * m[i] + g[i];
    for (int v = 2; v < 4; ++v) mycc::data<float>(outputs[v])[i] += g[i];
    result[i] = p[i] - static_cast<float>(numbers[0].real) * m[i];
  }
}
"""


@torch.library.custom_op("mycctest_writes::momentum", mutates_args=("m", "v"))
def momentum(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor, v: list[torch.Tensor], lr: float) -> torch.Tensor:
    m.mul_(0.9).add_(g)
    for other in v:
        other.add_(g)
    return p - lr * m


@momentum.register_fake
def _(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor, v: list[torch.Tensor], lr: float) -> torch.Tensor:
    return torch.empty_like(p)


@torch.library.custom_op("mycctest_writes::add_to", mutates_args={"x"})
def add_to(x: torch.Tensor, value: float) -> None:
    x.add_(value)


@torch.library.custom_op("mycctest_writes::maybe", mutates_args={"count"})
def maybe(x: torch.Tensor, count: torch.Tensor | None = None) -> torch.Tensor:
    if count is not None:
        count.add_(1)
    return x * 2


@maybe.register_fake
def _(x: torch.Tensor, count: torch.Tensor | None = None) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("mycctest_writes::unknown", mutates_args={"x"})
def unknown(x: torch.Tensor) -> None:
    x.zero_()


@torch.library.custom_op("mycctest_writes::badly", mutates_args={"x"})
def badly(x: torch.Tensor) -> torch.Tensor:
    x.zero_()
    return x + 1


@badly.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@mycc.lowering("mycctest_writes::add_to")
def lower_add_to(ctx: Any, x: Any, value: float) -> Any:
    return ctx.builder.map(x.shape, x.dtype, lambda i: call("add", x.at(i), number(value, x.dtype)))


@mycc.lowering("mycctest_writes::maybe")
def lower_maybe(ctx: Any, x: Any, count: Any = None) -> Any:
    twice = ctx.builder.map(x.shape, x.dtype, lambda i: call("mul", x.at(i), number(2.0, x.dtype)))
    if count is None:
        return twice
    return twice, ctx.builder.map(count.shape, "i64", lambda i: call("add", count.at(i), number(1, "i64")))


class Model(nn.Module):
    """A temporary, a row of one, a buffer and an argument are written to."""

    steps: torch.Tensor
    sums: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("sums", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        y = x * 2
        old = y + 1
        first = y[0]
        add_to(y, 3.0)
        add_to(first, 10.0)
        add_to(self.sums, 1.0)
        add_to(x, 0.5)
        z = maybe(y, count=self.steps)
        return y, old, first, maybe(z), self.sums + x


def _same(model: nn.Module, run: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Results and what has been written to are those of eager."""
    left, right = [x.clone() for x in inputs], [x.clone() for x in inputs]
    with torch.no_grad():
        wanted = model(*right)
    for found, expected in zip([*run(*left), *left], [*wanted, *right], strict=True):
        torch.testing.assert_close(found, expected)


def test_a_lowering(tmp_path: Path) -> None:
    eager = Model()
    path = mycc.compile(Model(), (torch.randn(3, 4),), out=tmp_path / "a.pkg", dynamic_shapes={"x": {0: ROWS}})
    loaded = mycc.load(path)
    for rows in (3, 1, 20):
        _same(eager, loaded, torch.randn(rows, 4))
    assert int(loaded.state["steps"]) == 3
    torch.testing.assert_close(torch.as_tensor(loaded.state["sums"]), eager.sums)


def steps(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> Any:
    v = [g * 2, torch.ones(g.shape[1], g.shape[0]).mT]
    for _ in range(2):
        p = momentum(p, m, g, v, 0.1)
    return p, v[0], v[1] + 1


def test_a_cpp_kernel(tmp_path: Path) -> None:
    mycc.cpp_kernel("mycctest_writes::momentum", MOMENTUM)
    shapes = {name: {0: ROWS} for name in "pmg"}
    inputs = tuple(torch.randn(5, 3) for _ in range(3))
    loaded = mycc.load(mycc.compile(steps, inputs, out=tmp_path / "a.pkg", dynamic_shapes=shapes))
    for rows in (5, 1, 40):
        _same(Call1(steps), loaded, *(torch.randn(rows, 3) for _ in range(3)))


class Cache(nn.Module):
    """A kernel of the user's writes a row of a buffer, and counts; the buffers are read before and behind."""

    rows: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(50, 40))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> Any:
        before = self.rows[places] + 1
        log = torch.zeros(3)
        put(self.rows, self.count, log, x)
        put(self.rows, self.count, log, x + 1)
        return before, self.rows.sum(1), log, self.count * 2


PUT = """
#include "mycc/custom.h"

// rows[count] = x; log[count] = x[0]; count += 1
extern "C" void put(const mycc_host *, const mycc_tensor *outputs, const mycc_tensor *inputs, const mycc_number *) {
  float *rows = mycc::data<float>(outputs[0]), *log = mycc::data<float>(outputs[2]);
  int64_t *count = mycc::data<int64_t>(outputs[1]);
  const float *x = mycc::data<const float>(inputs[0]);
  const int64_t width = inputs[0].shape[0];
  if (*count < outputs[0].shape[0])
    for (int64_t i = 0; i < width; ++i) rows[*count * width + i] = x[i];
  log[*count % 3] = x[0];
  ++*count;
}
"""


@torch.library.custom_op("mycctest_writes::put", mutates_args={"rows", "count", "log"})
def put(rows: torch.Tensor, count: torch.Tensor, log: torch.Tensor, x: torch.Tensor) -> None:
    place = int(count)
    if place < rows.shape[0]:
        rows[place] = x
    log[place % 3] = x[0]
    count.add_(1)


def test_state_is_written_where_it_lies(tmp_path: Path) -> None:
    """The kernel gets the memory of the buffer itself: nothing copies its 50 rows."""
    mycc.cpp_kernel("mycctest_writes::put", PUT)
    inputs = torch.randn(40), torch.tensor([0, 1, 4])
    path = mycc.compile(Cache(), inputs, out=tmp_path / "a.pkg")
    loaded, eager = mycc.load(path), Cache()
    for _ in range(3):
        _same(eager, loaded, torch.randn(40), torch.tensor([0, 1, 4]))
    torch.testing.assert_close(torch.as_tensor(loaded.state["rows"]), eager.rows)
    assert int(loaded.state["count"][0]) == 6
    (entry,) = loaded.manifest["entry_points"]
    copies = [k["name"] for k in entry["kernels"] if k["kind"] == "map" and int(k["writes"]) >= 50 * 40 * 4]
    assert copies == []


def test_where_torch_has_made_it_functional(tmp_path: Path) -> None:
    """A write to the parts of complex numbers leaves the functional form to torch."""

    def model(x: torch.Tensor) -> Any:
        y = x + 1
        z = torch.complex(y, x)
        torch.view_as_real(z)[0].mul_(3)
        y = y + z.real + z.imag
        add_to(y, 2.0)
        return y, maybe(y, count=None), y[1] * 2

    x = torch.randn(3, 4)
    _same(Call1(model), mycc.load(mycc.compile(model, (x,), out=tmp_path / "a.pkg")), x)


def test_a_triton_kernel(interpreter: TritonInterpreter) -> None:
    pytest.importorskip("triton")
    from .writing_kernels import launch_momentum

    mycc.triton_kernel("mycctest_writes::momentum")(launch_momentum)
    inputs = tuple(torch.randn(5, 30) for _ in range(3))
    program = device_program(Call1(steps), inputs)
    left = {}
    found = run_interpreted(program, interpreter, [x.clone() for x in inputs], left)
    wanted = steps(*(own := [x.clone() for x in inputs]))
    torch.testing.assert_close(found, list(wanted), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(left[program.schedule.program.inputs[1]].reshape(5, 30), own[1])
    model = Model()
    x = torch.randn(3, 4)
    found = run_interpreted(device_program(Model(), (x,)), interpreter, (x.clone(),))
    torch.testing.assert_close(found, list(model(x)))


def in_a_branch(x: torch.Tensor) -> torch.Tensor:
    def then(x: torch.Tensor) -> torch.Tensor:
        add_to(x, 1.0)
        return x * 2

    return torch.cond(x.sum() > 0, then, lambda x: x * 3, (x,))


def test_in_a_branch(tmp_path: Path) -> None:
    made = mycc.load(mycc.compile(in_a_branch, (torch.ones(2, 2),), out=tmp_path / "a.pkg"))
    for first in (1.0, -1.0):
        x, mine = torch.full((2, 2), first), torch.full((2, 2), first)
        with torch.no_grad():
            wanted = in_a_branch(x)
        torch.testing.assert_close(made(mine), wanted)
        torch.testing.assert_close(mine, x)


def shared(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return momentum(y, y[:2], x, [x], 0.1)


def with_unknown(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    unknown(y)
    return y


def badly_lowered(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return badly(y) + y


mycc.lowering("mycctest_writes::badly")(lambda ctx, x: x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (shared, r"mycctest_writes::momentum writes to 'm', which shares memory(.|\n)*return momentum\((.|\n)*clone"),
        (
            with_unknown,
            r"mycctest_writes.unknown.default\(f32\[2, 2\]\)(.|\n)*@mycc.lowering\(\"mycctest_writes::unknown\"\)",
        ),
        (
            badly_lowered,
            r"has to return 2 Tensors \(its results, then the new values of what it writes to\), not Tensor",
        ),
    ],
)
def test_refusals(model: Callable[..., Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(mycc.CompileError, match=message):
        mycc.compile(model, (torch.ones(2, 2),), out=tmp_path / "a.pkg")


@torch.library.custom_op("mycctest_writes::row_sums", mutates_args=())
def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


@row_sums.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[:-1])


def test_arguments_of_the_builder_keep_their_old_names(tmp_path: Path) -> None:
    """`folds` was the name of `reductions`."""

    def lower(ctx: Any, x: Any) -> Any:
        (out,) = ctx.builder.reduce(x.shape, [1], folds=[("sum", x.at)], finish=[("f32", lambda accs: accs[0])])
        return out

    mycc.lowering("mycctest_writes::row_sums")(lower)
    x = torch.randn(5, 7)
    with pytest.warns(DeprecationWarning, match="'folds' of reduce is now called 'reductions'"):
        path = mycc.compile(Call1(row_sums), (x,), out=tmp_path / "m.pkg", verify=False, target="cpu")
    torch.testing.assert_close(torch.from_numpy(mycc.load(path)(x.numpy())), x.sum(-1))
