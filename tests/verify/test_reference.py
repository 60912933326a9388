"""The float64 reference against the same model in float64, and the fast convolutions against torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.verify import eager, error, reference
from mycc.compiler.verify.fast_double import FAST
from mycc.compiler.verify.reference import widened
from torch import nn
from torch.nn import functional as F

aten = torch.ops.aten
Dim = torch.export.Dim


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def captured(function: Callable[..., Any], x: torch.Tensor, dynamic: Any = None) -> Any:
    return capture(Function(function), (x,), dynamic_shapes=dynamic)


def test_equals_the_model_in_double() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu").eval()
    x = torch.randn(2, 5, 16)
    (found,) = reference(capture(model, (x,)), [x])
    with torch.no_grad():
        wanted = model.double()(x.double())
    assert found.dtype == torch.float64
    assert error(found, wanted) < 1e-14


def test_casts_do_not_round() -> None:
    """Float casts, also to half and back, are to float64: r is the graph with every float as float64."""
    x = torch.rand(100)
    (found,) = reference(captured(lambda x: x.half().bfloat16().float() / 3.0, x), [x])
    assert torch.equal(found, x.double() / 3.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.full((3,), 0.1),
        lambda x: x + torch.linspace(0.1, 0.7, 3),
        lambda x: x * torch.where(x > 0, 0.1, 0.3),
        lambda x: x + torch.arange(3) * 0.1,
        lambda x: x + torch.arange(3) / 7,
        lambda x: x + torch.arange(3).float().div(7).sin(),
        lambda x: x + torch.sqrt(torch.arange(3)),
        lambda x: x + (x > 0).sum() / 3,
        lambda x: x + torch.mean(torch.arange(3), dtype=torch.float32) / 3,
        lambda x: x + torch.zeros_like(x, dtype=torch.float16) + 0.1,
    ],
)
def test_floats_that_are_made_on_the_way(function: Callable[..., Any]) -> None:
    """Floats made of nothing, of scalars or of integers have all bits of float64."""
    x = torch.rand(3)
    (found,) = reference(captured(function, x), [x])
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            wanted = captured_in_double(function, x)
    finally:
        torch.set_default_dtype(default)
    assert found.dtype == torch.float64
    assert error(found, wanted) < 1e-15


def captured_in_double(function: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    """The function in float64, its own float32 casts with it."""
    program = torch.export.export(Function(function), (x.double(),), strict=False)
    for node in program.graph.nodes:
        node.args = torch.fx.node.map_aggregate(node.args, _wide)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _wide)
    program.graph_module.recompile()
    return program.graph_module(x.double())[0]


def _wide(value: Any) -> Any:
    return torch.float64 if value in (torch.float32, torch.float16) else value


def test_integers_stay() -> None:
    x = torch.rand(4)
    found = reference(captured(lambda x: ((x * 10).long(), x > 0.5, x.argmax()), x), [x])
    assert [t.dtype for t in found] == [torch.int64, torch.bool, torch.int64]


def test_sizes_come_from_the_inputs() -> None:
    graph = captured(lambda x: x.reshape(x.shape[0] * 2, 2) / x.shape[0], torch.rand(3, 4), ({0: Dim("batch", max=9)},))
    x = torch.rand(5, 4)
    (found,) = reference(graph, [x])
    assert torch.equal(found, x.double().reshape(10, 2) / 5)


def test_no_second_model_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time at most one layer's weights are alive in float64."""
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)]).eval()
    graph = capture(model, (torch.rand(1, 256),))
    alive: list[Any] = []
    peak = 0
    plain = torch.Tensor.to

    def counted(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        import weakref

        nonlocal peak
        result = plain(self, *args, **kwargs)
        if result.dtype == torch.float64 and result.numel() == 256 * 256:
            alive.append(weakref.ref(result))
            peak = max(peak, sum(r() is not None for r in alive))
        return result

    monkeypatch.setattr(torch.Tensor, "to", counted)
    reference(graph, [torch.rand(1, 256)])
    assert len(alive) == 8
    assert peak <= 2


def test_embedding_takes_rows_before_it_widens() -> None:
    table = nn.Embedding(50, 8)
    ids = torch.tensor([[3, 49, 0]])
    (found,) = reference(capture(table, (ids,)), [ids])
    assert torch.equal(found, table.weight.detach()[ids].double())


def test_eager_is_eager() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(eager(capture(model, (x,)), [x])[0], model(x))


class Quantized(torch.Tensor):
    """A tensor of two that is float32 to the outside, and that nothing but its parts can be read of."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> Quantized:
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)  # type: ignore[attr-defined]

    def __init__(self, data: torch.Tensor, scale: torch.Tensor) -> None:
        self.data_, self.scale = data, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["data_", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], *_: Any) -> Quantized:
        return Quantized(parts["data_"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is aten.detach.default:
            return Quantized(args[0].data_, args[0].scale)
        raise AssertionError(f"{function} of a quantized tensor")


def test_subclasses_are_not_widened() -> None:
    """What they compute, their own operators alone know."""
    tensor = Quantized(torch.ones(2, 2, dtype=torch.int8), torch.rand(2, 1))
    assert widened(tensor) is tensor
    assert isinstance(widened([tensor, torch.ones(1)])[1], torch.Tensor)


def test_operators_run_in_their_own_dtypes_where_float64_has_none() -> None:
    x, scale, zero = torch.randn(4, 6), torch.rand(6) * 0.01 + 0.001, torch.zeros(6, dtype=torch.int32)

    def forward(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -127, 127) / 3

    (found,) = reference(capture(forward, (x, scale, zero)), [x, scale, zero])
    assert torch.equal(found, torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -127, 127).double() / 3)


CONVOLUTIONS = {
    "plain": {"weight": (6, 4, 3, 3)},
    "pointwise, strided": {"weight": (6, 4, 1, 1), "stride": [2, 2]},
    "depthwise": {"weight": (4, 1, 3, 3), "padding": [1, 1], "groups": 4},
    "depthwise, strided and dilated": {
        "weight": (4, 1, 3, 2), "stride": [2, 1], "padding": [2, 1], "dilation": [2, 3], "groups": 4,
    },
    "grouped": {"weight": (6, 2, 3, 3), "padding": [1, 0], "groups": 2},
    "depthwise with two outputs each": {"weight": (8, 1, 3, 3), "groups": 4},
    "one number for both": {"weight": (6, 4, 3, 3), "stride": [2], "padding": [1]},
}  # fmt: skip


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_fast_convolution(name: str, bias: bool) -> None:
    options = dict(CONVOLUTIONS[name])
    x, weight = torch.randn(2, 4, 9, 11).double(), torch.randn(options.pop("weight")).double()
    offset = torch.randn(weight.shape[0]).double() if bias else None
    found = FAST[aten.conv2d.default](x, weight, offset, **options)
    assert error(found, F.conv2d(x, weight, offset, **options)) < 1e-15


def test_fast_convolution_1d_and_general() -> None:
    x, weight = torch.randn(2, 4, 30).double(), torch.randn(6, 4, 3).double()
    wanted = F.conv1d(x, weight, None, 2, 1)
    assert error(FAST[aten.conv1d.default](x, weight, None, [2], [1]), wanted) < 1e-15
    general = FAST[aten.convolution.default]
    assert error(general(x, weight, None, [2], [1], [1], False, [0], 1), wanted) < 1e-15
    assert general(x, weight, None, [2], [1], [1], True, [0], 1) is None


def test_views_do_not_hang_on_the_strides_of_the_trace() -> None:
    """A convolution in float64 may give another memory format than it gave in the trace."""

    def rows(x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).view(-1, 3) * 2

    x = torch.randn(2, 3, 4, 5)
    graph = capture(rows, (x.to(memory_format=torch.channels_last),))
    wanted = x.permute(0, 2, 3, 1).reshape(-1, 3) * 2
    torch.testing.assert_close(reference(graph, [x])[0], wanted.double())
    torch.testing.assert_close(eager(graph, [x])[0], wanted)
