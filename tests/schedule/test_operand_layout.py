"""Operands that lie across the lanes: transposed first, reduced in the order of what is read, or left to tiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.ir.index import ONE
from mycc.compiler.ir.nodes import Map, Nest, Reduce, Scan
from torch import Tensor
from torch.nn import functional as F

from ..helpers.programs import Call1, scheduled

LONG, LAST, COLOURS, IMAGE = (2, 160, 128), (2, 32, 24, 64), (2, 96, 64, 3), (2, 32, 48, 64)


def first(x: Tensor) -> Tensor:
    """Channels last as channels first."""
    return x.permute(0, 3, 1, 2)


#: what is transposed: a function of an operand, its shape, and height and width of the matrices
TRANSPOSED: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...], tuple[int, int]]] = {
    "padding": (lambda x: F.pad(x.transpose(1, 2), (2, 3)), LONG, (160, 128)),
    "roll": (lambda x: x.roll(3, -1).transpose(1, 2).contiguous(), LONG, (160, 128)),
    "running_sum": (lambda x: x.transpose(1, 2).cumsum(-1), LONG, (160, 128)),
    "windows_of_a_row": (lambda x: F.avg_pool1d(x.transpose(1, 2), 2).contiguous(), LONG, (160, 128)),
    "windows": (lambda x: F.max_pool2d(first(x), 5, 1, 2).contiguous(), LAST, (24, 64)),
    "windows_of_colours": (lambda x: F.avg_pool2d(first(x), 3, 1, 1).contiguous(), COLOURS, (64, 3)),
    "bilinear": (lambda x: F.interpolate(first(x), scale_factor=2.0, mode="bilinear").contiguous(), LAST, (24, 64)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(first(x), 2).contiguous(), LAST, (24, 64)),
}
#: what is not
OTHERS: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "reflection": (lambda x: F.pad(x.transpose(1, 2), (2, 3), mode="reflect"), LONG),
    "tiles": (lambda x: x.transpose(1, 2).relu().contiguous(), LONG),
    "small": (lambda x: F.pad(x.transpose(1, 2), (2, 3)), (2, 40, 32)),
    "in_order": (lambda x: F.pad(x, (2, 3)), LONG),
    "short_rows": (lambda x: x.amax(-1), (4096, 10)),
    "shorter_rows": (lambda x: x.sum(-1), (8192, 4)),
    "rows_of_colours": (lambda x: x.t().contiguous(), (8192, 3)),
    "few_columns": (lambda x: (x - x.amax(-1, keepdim=True)).exp(), (8192, 5)),
    "a_part": (lambda x: F.pad(x[:, :, :16].transpose(1, 2), (2, 3)), LONG),
    "few_lanes": (lambda x: F.pad(x[:, :12].transpose(1, 2), (1, 1)), LONG),
    "few_results": (lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 4), LONG),
    "columns": (lambda x: x.transpose(1, 2).amax(-1), LONG),
    "largest": (lambda x: x.permute(2, 1, 0).max(-1), (160, 12, 4)),
    "norm": (lambda x: F.layer_norm(x.transpose(1, 2), (160,)), LONG),
    "norm_of_channels": (lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (32,)), IMAGE),
    "norm_then_transposed": (lambda x: F.layer_norm(x, (128,)).transpose(1, 2).contiguous(), LONG),
    "softmax_then_transposed": (lambda x: x.softmax(-1).transpose(1, 2).contiguous(), LONG),
    "every_second": (lambda x: x[:, :, ::2].sum(1), LONG),
    "backwards": (lambda x: x.flip(-1).sum(0), LONG),
    "both": (lambda x: (x.softmax(-1), F.pad(x.softmax(-1).transpose(1, 2) * 2, (1, 1))), LONG),
    "twice": (lambda x: (F.pad(x.transpose(1, 2), (2, 3)), F.pad(x.transpose(1, 2), (1, 1)).exp()), LONG),
}


def nodes(function: Callable[[Tensor], Any], shape: tuple[int, ...], dynamic: bool = False) -> list[Any]:
    return list(scheduled(function, torch.empty(shape), dynamic=dynamic).program.nodes)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_operands_are_transposed(name: str, dynamic: bool) -> None:
    function, shape, (height, width) = TRANSPOSED[name]
    copy, *_ = nodes(function, shape, dynamic)
    assert isinstance(copy, Map)
    ((load,), (store,)) = copy.stores[0].value.loads, copy.stores
    _, column, row = copy.dims
    assert (row.extent.constant, column.extent.constant) == (height, width)
    assert load.index.coefficient(column) == store.index.coefficient(row) == ONE


@pytest.mark.parametrize(
    "name",
    [
        "tiles",
        "small",
        "in_order",
        "short_rows",
        "shorter_rows",
        "few_columns",
        "a_part",
        "few_lanes",
        "few_results",
        "columns",
    ],
)
def test_others_stay(name: str) -> None:
    names = {b.name for node in nodes(*OTHERS[name]) for b in node.writes()}
    assert not [n for n in names if "_transposed" in n]


def test_reductions_go_in_the_order_of_reads() -> None:
    """The results' places are another kernel's."""
    reduction, put = nodes(*OTHERS["largest"])
    assert isinstance(reduction, Reduce)
    assert isinstance(put, Map)
    (load,) = reduction.reductions[0].value.loads
    assert all(s.index.coefficient(reduction.dims[-1]) == ONE for s in reduction.stores)
    assert load.index.coefficient(reduction.dims[-1]) == ONE


@pytest.mark.parametrize("name", ["norm_of_channels", "norm_then_transposed", "softmax_then_transposed"])
def test_results_that_lie_across_a_nest_are_a_kernel_of_their_own(name: str) -> None:
    *before, last = nodes(*OTHERS[name])
    assert any(isinstance(n, Nest) for n in before)
    assert isinstance(last, Map)


def test_a_scan_reads_in_order() -> None:
    _, scan = nodes(*TRANSPOSED["running_sum"][:2])
    assert isinstance(scan, Scan)
    assert all(ld.index.coefficient(scan.step) == ONE for e in scan.expressions() for ld in e.loads)


def test_values(tmp_path: Path) -> None:
    torch.manual_seed(0)
    forms = {name: form[:2] for name, form in (TRANSPOSED | OTHERS).items()}
    given = {name: torch.randn(shape) for name, (_, shape) in forms.items()}
    entries = {name: (Call1(forms[name][0]).eval(), (x,)) for name, x in given.items()}
    mycc.compile(entries, out=tmp_path / "m.pkg")
    for threads in (1, 2):
        model = mycc.load(tmp_path / "m.pkg", threads=threads)
        for name, x in given.items():
            want, found = forms[name][0](x.double()), model.entry(name)(x)
            pairs = zip(want, found, strict=True) if isinstance(want, tuple) else [(want, found)]
            for expected, got in pairs:
                torch.testing.assert_close(torch.as_tensor(got).to(expected.dtype), expected, rtol=1e-5, atol=1e-5)


def test_values_of_a_dynamic_batch(tmp_path: Path) -> None:
    forms = {name: form[:2] for name, form in (TRANSPOSED | OTHERS).items() if name not in ("largest", "both", "twice")}
    batch = ({0: torch.export.Dim("b", min=1, max=9999)},)
    entries = {
        name: (Call1(function).eval(), (torch.randn(shape),), None, (batch,))
        for name, (function, shape) in forms.items()
    }
    model = mycc.load(mycc.compile(entries, out=tmp_path / "m.pkg"))
    for name, (function, shape) in forms.items():
        for size in (1, 5):
            x = torch.randn(size, *shape[1:])
            found = torch.as_tensor(model.entry(name)(x))
            torch.testing.assert_close(found.double(), function(x.double()), rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_neighbours_round_as_in_torch(mode: str, tmp_path: Path) -> None:
    """41 * float32(2 / 82) is less than 1."""
    sizes = [(2, 82), (3, 123), (2, 61), (4, 41), (7, 21), (64, 128), (14, 3)]
    calls = {
        f"from_{n}_to_{out}": (Call1(lambda x, out=out: F.interpolate(x, size=out, mode=mode)), n) for n, out in sizes
    }
    given = {name: torch.arange(3.0 * n).view(1, 3, n) for name, (_, n) in calls.items()}
    mycc.compile({k: (f.eval(), (given[k],)) for k, (f, _) in calls.items()}, out=tmp_path / "m.pkg")
    model = mycc.load(tmp_path / "m.pkg")
    for name, (function, _) in calls.items():
        torch.testing.assert_close(
            torch.as_tensor(model.entry(name)(given[name])), function(given[name]), rtol=0, atol=0
        )
