"""In-place operators and views become functional ones with the same results."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import capture, format_graph
from mycc.compiler.capture.state import share_state, training_notes
from torch.export import Dim


def relu_chain(x):
    y = torch.relu_(x * 2)
    return y + 1


def views(x):
    y = x * 2
    row, flat = y[0], y.view(-1)
    row.mul_(3)
    y[:, 1] = 7
    flat.add_(1)
    return y + 1, row, flat


def write_back_through_two_views(x):
    y = x.clone()
    y.transpose(0, 1)[1:].unsqueeze(0).mul_(2)
    return y


def written_constant(x):
    table = torch.tensor([1.0, 2.0, 3.0])
    table[0] = 5
    return x + table, table


def slice_assignment(x):
    y = torch.zeros(x.shape[0], 5)
    y[:, 1:4] = x
    return y


def keeps_dtype(x):
    y = x + 1
    y += torch.ones(3, dtype=torch.float64)
    mask = torch.zeros(4, 3, dtype=torch.long)
    mask[1:] = 3
    mask |= 4
    return y, mask, y.masked_fill_(y > 0, 2.0)


def written_result_of_several(x):
    values, places = torch.topk(x, 2, dim=-1)
    values /= values.sum(-1, keepdim=True)
    return values, places


def split_parts(x):
    first, second = x.clone().split(2)
    first.add_(1)
    return first, second


def regions(x):
    with torch.no_grad():
        y = x + 1
    with torch.autocast("cpu", enabled=False):
        z = y @ x.T
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = x @ x.T
    return z, w


PROGRAMS = [
    relu_chain,
    views,
    write_back_through_two_views,
    written_constant,
    slice_assignment,
    keeps_dtype,
    split_parts,
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", [*PROGRAMS, regions, written_result_of_several], ids=lambda f: f.__name__)
def test_same_result_without_writes(program, dynamic):
    if dynamic and program in (keeps_dtype, split_parts):
        pytest.skip("its sizes are fixed")
    shapes = ({0: Dim("batch", min=2, max=8)},) if dynamic else None
    graph = capture(program, (torch.randn(4, 3),), dynamic_shapes=shapes)
    for node in graph.module.graph.nodes:
        assert not (hasattr(node.target, "_schema") and node.target._schema.is_mutable), node.format_node()
        assert "higher_order" not in str(type(node.target)), node.format_node()
    graph.module.graph.lint()
    expected = program(graph.examples[0].clone())
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(graph.module(*graph.examples), expected, strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_graph_text(golden):
    graph = capture(views, (torch.randn(4, 3),), dynamic_shapes=({0: Dim("batch", max=8)},))
    text = format_graph(graph)
    assert re.search(r"%mul: .* # -  test_functional.py:\d+\n", text)
    golden(re.sub(r" +# .*", "", text))


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


class Assigner(Counter):
    def forward(self, x):
        self.count = self.count + 1
        return x + self.count


class Inside(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("kind", [Counter, Assigner])
def test_a_changed_buffer_is_state(kind):
    graph = capture(Inside(kind()), (torch.randn(2),))
    (change,) = graph.in_place
    assert (change.name, change.input, change.output) == ("inner.count", 1, 1)
    assert (graph.n_arguments, graph.n_results) == (1, 1)
    x = torch.randn(2)
    torch.testing.assert_close(graph.module(x, torch.tensor([4.0])), (x + 5, torch.tensor([5.0])))


class Grower(Counter):
    def forward(self, x):
        self.count = torch.cat([self.count, x])
        return x + 1


def test_a_buffer_of_another_shape_is_refused():
    with pytest.raises(
        CompileError, match=r"the model replaces its buffer 'inner\.count' by a tensor of another shape"
    ):
        capture(Inside(Grower()), (torch.randn(2),))


class Table(torch.nn.Module):
    """Fills a table on its first call; `grows`: it also counts calls in it."""

    def __init__(self, grows: bool = False):
        super().__init__()
        self.register_buffer("table", torch.zeros(1))
        self.grows = grows

    def forward(self, x):
        if self.table.shape[0] != x.shape[1]:
            self.table = torch.arange(x.shape[1]) * 2.0
        if self.grows:
            self.table = self.table + 1
        return x + self.table


def test_a_table_that_the_first_call_fills():
    model, x = Inside(Table()), torch.randn(2, 3)
    graph = capture(model, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=1, max=9)},))
    assert not graph.in_place
    assert model.inner.table.tolist() == [0.0]
    (table,) = graph.constants.values()
    assert table.tolist() == [0.0, 2.0, 4.0]
    with pytest.raises(CompileError, match="fixes a dimension"):
        capture(model, (x,), dynamic_shapes=({1: torch.export.Dim("n", min=1, max=9)},))
    with pytest.raises(CompileError, match=r"replaces its buffer 'inner\.table'"):
        capture(Inside(Table(grows=True)), (x,))
    assert model.inner.table.tolist() == [0.0]


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.total = torch.ones(2)

    def forward(self, x):
        self.total += x
        return self.total * 1


def test_a_plain_attribute_is_state_and_stays_as_it_was():
    model = Plain()
    (change,) = capture(model, (torch.randn(2),)).in_place
    assert change.name == "total"
    assert model.total.tolist() == [1, 1]
    assert change.initial.tolist() == [1, 1]


@pytest.mark.parametrize("write", [lambda x: x.relu_(), lambda x: x.view(-1).relu_()], ids=["direct", "view"])
def test_a_changed_input_is_an_output_too(write):
    graph = capture(write, (torch.randn(2, 2),))
    (change,) = graph.in_place
    assert (change.name, change.input, change.output, change.initial) == ("", 0, 1, None)


class Reader(Inside):
    def forward(self, x):
        return x + self.inner.count


def test_what_two_entry_points_share():
    inner = Counter()
    first, second = share_state([capture(inner, (torch.randn(2),)), capture(Reader(inner), (torch.randn(2),))])
    assert [change.slot for change in (*first.in_place, *second.in_place)] == [0, 0]
    assert second.in_place[0].output is None
    assert second.constants == {}


class Overlapping(Counter):
    def __init__(self):
        super().__init__()
        self.register_buffer("wide", torch.zeros(2))
        self.count = self.wide[:1]

    def forward(self, x):
        self.count.add_(1)
        return x + self.wide


def test_state_shares_no_memory():
    with pytest.raises(CompileError, match="changes its buffer 'count', which shares memory with 'wide'"):
        share_state([capture(Overlapping(), (torch.randn(2),))])


def test_training_mode():
    norm = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3))
    graph = capture(norm, (torch.randn(2, 3, 4, 4),))
    names = {change.name for change in graph.in_place}
    assert names == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert "call model.eval()" in training_notes(share_state([graph]))[0]
    drop = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
    (note,) = training_notes([capture(drop, (torch.randn(2, 3),))])
    assert "drops values at random (in module '1' (Dropout))" in note
    assert "call model.eval()" in note
    assert not training_notes([capture(drop.eval(), (torch.randn(2, 3),))])


def test_a_write_to_elements_that_lie_over_each_other():
    def windows(x):
        y = x.clone()
        y.unfold(0, 2, 1).add_(1)
        return y

    with pytest.raises(CompileError, match="writes to a tensor whose elements share memory") as error:
        capture(windows, (torch.randn(5),))
    assert "test_functional.py" in error.value.details[0]


@pytest.mark.parametrize("min_size", [None, 1])
def test_bodies_say_the_least_size_too(min_size: int | None):
    """torch.export takes sizes for 2 at least: a row 1 in a body leaves out 1."""

    def model(x):
        return torch.cond(x.sum() > 0, lambda x: x[1] + 1, lambda x: x[0] * 2, (x,))

    shapes = ({0: Dim("n", min=min_size, max=16)},)
    if min_size is not None:
        with pytest.raises(CompileError, match="does not work for n = 1, which its range includes"):
            capture(model, (torch.randn(4),), dynamic_shapes=shapes)
        return
    graph = capture(model, (torch.randn(4),), dynamic_shapes=shapes)
    assert [s.min for s in (*graph.symbols, *(s for r in graph.regions.values() for s in r.symbols))] == [2, 2, 2]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[1:].copy_(x[:-1]),
        lambda x: x[:-1].mul_(x[1:]),
        lambda x: x.as_strided((2, 2), (1, 1))[:, 0].copy_(x.as_strided((2, 2), (1, 1))[:, 1]),
    ],
)
def test_a_write_that_reads_what_it_has_written(write: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Eager refuses it; the same elements, others, and every second one may be read."""

    def shifted(x: torch.Tensor) -> torch.Tensor:
        write(x)
        return x.clone()

    def apart(x: torch.Tensor) -> torch.Tensor:
        x[:2].add_(x[2:4])
        x[1:3].mul_(x[1:3])
        x[::2].add_(x[1::2])
        return x.clone()

    with pytest.raises(RuntimeError, match="unsupported operation"):
        shifted(torch.randn(6))
    with pytest.raises(CompileError, match="reads another part that overlaps it"):
        capture(shifted, (torch.randn(6),))
    x = torch.randn(6)
    torch.testing.assert_close(capture(apart, (x,)).module(x)[0], apart(x.clone()))
