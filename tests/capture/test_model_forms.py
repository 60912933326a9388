"""Forms in which people have models: TorchScript, weights of inference mode, subclasses of tensors; and those of which
nothing can be compiled, refused by what they are."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from mycc import CompileError
from mycc.compiler.capture import CaptureRequest, ModelGraph, capture, capture_request
from mycc.compiler.capture.precision import in_dtype
from torch import nn
from torch.export import Dim
from torch.utils._python_dispatch import return_and_correct_aliasing

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

X = torch.randn(3, 4)
ROWS = ({0: Dim("rows", min=1, max=9)},)


class Branching(nn.Module):
    """Its branch is of a size, which a script keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: torch.Tensor, times: int = 2) -> torch.Tensor:
        if x.size(1) > 5:
            return self.layer(x)  # type: ignore[no-any-return]
        return self.layer(x).relu() + self.offset * times  # type: ignore[no-any-return]


class OfValues(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x


def scripted(model: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(model)


def traced(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(model, X)


def agrees(graph: ModelGraph, model: Any, *args: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(graph.module(args[0])[0], model(*args), rtol=0, atol=0)


def test_scripts_and_traces() -> None:
    for model in (scripted(Branching()), traced(nn.Linear(4, 3)), nn.Sequential(scripted(Branching()), nn.ReLU())):
        graph = capture(model, (X,))
        assert not any("mycc" in name for name in graph.constants)
        agrees(graph, model, X)
    script = scripted(Branching())
    agrees(capture(script, (X, 3)), script, X, 3)
    assert isinstance(capture(script, (X,), {"times": 3}).in_tree, dict)


def test_traces_of_dynamic_sizes() -> None:
    model = traced(nn.Linear(4, 3))
    graph = capture(model, (X,), dynamic_shapes=ROWS)
    assert [s.name for s in graph.symbols] == ["rows"]
    agrees(graph, model, torch.randn(7, 4))
    function = traced(lambda x: x * 2 + 1)
    agrees(capture(function, (X,), dynamic_shapes=ROWS), function, torch.randn(8, 4))


def test_a_script_inside_stays_in_the_model() -> None:
    model = nn.Sequential(scripted(Branching()))
    capture(model, (X,))
    assert isinstance(model[0], torch.jit.ScriptModule)


def test_a_script_that_looks_at_values_is_refused() -> None:
    with pytest.raises(CompileError, match="depends on the values of a tensor"):
        capture(scripted(OfValues()), (X,))


def test_weights_of_inference_mode() -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
        x = torch.randn(3, 4)
    (request,) = in_dtype([CaptureRequest(model, (x,))], None)
    graph = capture_request(request)
    agrees(graph, model, X)
    weight = model[0].weight.data_ptr()
    assert weight in {t.data_ptr() for t in graph.constants.values()}, "the same memory, no copy"


class Halves(torch.Tensor):
    """A tensor that is the sum of two, as torchao's quantised weights are made of parts."""

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Halves:
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, torch.Tensor], *_: Any) -> Halves:
        return Halves(parts["a"], parts["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            copy = Halves(func(args[0].a), func(args[0].b))
            return return_and_correct_aliasing(func, args, kwargs or {}, copy)
        whole = [a.a + a.b if isinstance(a, Halves) else a for a in args]
        return func(*whole, **(kwargs or {}))


def test_weights_that_are_a_subclass() -> None:
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(Halves(torch.randn(3, 4), torch.randn(3, 4)), requires_grad=False)
    graph = capture(layer, (X,), dynamic_shapes=ROWS)
    agrees(graph, layer, torch.randn(5, 4))


class TakenApart(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.a.t() @ self.weight.b, self.bias)  # type: ignore[attr-defined]


def test_parts_of_such_weights() -> None:
    layer = TakenApart(4, 4)
    parts = torch.randn(4, 4), torch.randn(4, 4)
    layer.weight = nn.Parameter(Halves(*parts), requires_grad=False)
    graph = capture(layer, (X,), dynamic_shapes=ROWS)
    x = torch.randn(5, 4)
    want = nn.functional.linear(x, parts[0].t() @ parts[1], layer.bias.detach())
    torch.testing.assert_close(graph.module(x)[0].detach(), want)
    assert set(graph.constants) == {"weight_a", "weight_b", "bias"}


def test_what_has_no_weights_is_refused() -> None:
    with pytest.raises(CompileError, match=r"'0.weight' of the model has no shape yet: LazyLinear") as error:
        capture(nn.Sequential(nn.LazyLinear(4)), (X,))
    assert "Call the model once" in str(error.value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}, torch.qint8)
    with pytest.raises(CompileError, match=r"'0' of the model is a torch.ao.nn.quantized.* packed") as error:
        capture(quantised, (X,))
    assert "torchao" in str(error.value)
