"""F.interpolate of dynamic sizes: every mode, by sizes and by factors, after the graph passes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.model.operators.kept import KEPT
from mycc.compiler.verify import eager
from mycc.runtime.errors import CompileError
from torch.nn import functional as F

from .support import Dim, graph_of, operators

#: of the spatial dimensions: names in the order of torch's modes
MODES = {
    1: ("nearest", "nearest-exact", "area", "linear"),
    2: ("nearest", "nearest-exact", "area", "bilinear", "bicubic"),
    3: ("nearest", "nearest-exact", "area", "trilinear"),
}
SMOOTH = ("linear", "bilinear", "trilinear", "bicubic")
#: sizes of the spatial dimensions that each graph runs at
SIZES = ((6, 5, 16), (3, 2, 2), (2, 24, 40), (4, 7, 11))
SHAPES: tuple[dict[str, Any], ...] = (
    {"size": (4, 9, 14)}, {"scale_factor": 2}, {"scale_factor": 0.6}, {"scale_factor": (1.0, 0.5, 1.5)},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
)  # fmt: skip
CASES = [
    *((count, mode, torch.float32) for count, modes in MODES.items() for mode in modes),
    (2, "nearest-exact", torch.uint8), (2, "bilinear", torch.bfloat16),
]  # fmt: skip


def calls(count: int, mode: str, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    for shape in SHAPES if (mode, dtype) == ("bilinear", torch.float32) else SHAPES[2:4]:
        own = {key: value[-count:] if isinstance(value, tuple) else value for key, value in shape.items()}
        for align in (False, True) if mode in SMOOTH else (None,):
            yield {**own, "mode": mode, "align_corners": align}


def images(count: int, sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    x = torch.randn(2, 2, *sizes[-count:], generator=torch.Generator().manual_seed(sum(sizes)))
    return (x * 60).abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)


@pytest.mark.parametrize(("count", "mode", "dtype"), CASES, ids=lambda v: str(v).removeprefix("torch."))
def test_every_way_to_say_a_size(count: int, mode: str, dtype: torch.dtype) -> None:
    """As near to float64 as torch is, within a factor of two, and equal where pixels are only copied."""
    ways = list(calls(count, mode, dtype))

    def model(m: Any, x: torch.Tensor) -> list[torch.Tensor]:
        return [F.interpolate(x, **way) for way in ways]

    dims = {2 + i: Dim(f"n{i}", min=2, max=40) for i in range(count)}
    graph = run_graph_passes(graph_of(model, images(count, SIZES[0], dtype), dynamic=(dims,)))
    assert not [name for name in operators(graph) if name.removeprefix("aten.") not in KEPT]
    ours, torchs = [0.0] * len(ways), [0.0] * len(ways)
    for sizes in SIZES:
        x = images(count, sizes, dtype)
        found, wanted = eager(graph, (x,)), model(None, x)
        exact = model(None, x.double()) if mode in (*SMOOTH, "area") else wanted
        for i, (f, w, e) in enumerate(zip(found, wanted, exact, strict=True)):
            assert (f.shape, f.dtype) == (w.shape, w.dtype), ways[i]
            ours[i] = max(ours[i], (f.double() - e.double()).abs().max().item())
            torchs[i] = max(torchs[i], (w.double() - e.double()).abs().max().item())
    rounding = 2 * torch.finfo(dtype).eps if dtype.is_floating_point and mode in (*SMOOTH, "area") else 0.0
    for way, own, other in zip(ways, ours, torchs, strict=True):
        assert own <= max(2 * other, rounding), way


def test_explicit_sizes_and_scales() -> None:
    """The operators behind F.interpolate, called as exported programs of others do."""
    aten = torch.ops.aten

    def model(m: Any, x: torch.Tensor) -> Any:
        size = [x.shape[2] * 3 // 2, x.shape[3] * 3 // 2]
        return (
            aten.upsample_bilinear2d.default(x, size, False, 1.5, 1.5),
            aten.upsample_bicubic2d.default(x, size, True),
            aten.upsample_linear1d.default(x[:, 0], size[1:], False),
        )

    dims = {2: Dim("h", min=2, max=40), 3: Dim("w", min=2, max=40)}
    graph = run_graph_passes(graph_of(model, images(2, SIZES[0], torch.float32), dynamic=(dims,)))
    for sizes in SIZES:
        x = images(2, sizes, torch.float32)
        torch.testing.assert_close(tuple(eager(graph, (x,))), model(None, x))


def test_a_definition_for_the_examples_sizes_only_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asks a condition on a size that does not hold for all, with a result that depends on the answer."""
    from mycc.compiler.graph.decompose import decompose

    def only_long(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 4 else x * 3

    def any_length(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 0 else x * 3

    graph = graph_of(lambda m, x: F.hardswish(x) + 1, torch.randn(8), dynamic=({0: Dim("n", min=2, max=9)},))
    for definition, refused in ((any_length, False), (only_long, True)):
        monkeypatch.setattr(decompose, "_wanted", lambda node, kept: "hardswish" in str(node.target))
        monkeypatch.setattr(decompose, "_definitions", lambda target, own=definition: [own])
        if refused:
            with pytest.raises(
                CompileError, match=r"hardswish.* has no general decomposition(.|\n)*test_resize.py:\d+"
            ):
                run_graph_passes(graph)
        else:
            assert math.isclose(eager(run_graph_passes(graph), (torch.ones(3),))[0].sum().item(), 9)


@pytest.mark.parametrize(
    ("mode", "how"), [("bicubic", {"size": (12, 9)}), ("bilinear", {"scale_factor": 0.5})], ids=["size", "scale"]
)
@pytest.mark.parametrize(
    ("dtype", "antialias"), [(torch.uint8, False), (torch.uint8, True), (torch.float32, True)], ids=str
)
def test_filters_between_dynamic_sizes(dtype: torch.dtype, antialias: bool, mode: str, how: dict[str, Any]) -> None:
    def model(m: Any, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, mode=mode, antialias=antialias, **how)

    dynamic = ({2: Dim("h", min=2, max=70), 3: Dim("w", min=2, max=70)},)
    graph = run_graph_passes(graph_of(model, images(2, (20, 17), dtype), dynamic=dynamic))
    for size in ((20, 17), (5, 7), (31, 64), (12, 9)):
        x = images(2, size, dtype)
        (found,), wanted = eager(graph, (x,)), model(None, x)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0 if dtype == torch.uint8 else 2e-6)
