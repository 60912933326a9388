"""Seeded faults: what verification has to find, and what it must not take for a fault."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mycc.compiler.capture import ModelGraph, capture
from mycc.compiler.verify import eager, verify
from mycc.runtime.certificate import make_certificate, parse, serialize
from mycc.runtime.errors import CompileError
from torch import Tensor, nn

Run = Callable[[list[Tensor]], list[Tensor]]


def refused(graph: ModelGraph, run: Run) -> bool:
    try:
        verify(graph, run)
    except CompileError:
        return True
    return False


def with_weights(model: nn.Module, arguments: tuple[Tensor, ...], change: Callable[[nn.Module], None]) -> Run:
    """A package that has other weights than the model."""
    with torch.no_grad():
        change(model)
    graph = capture(model, arguments)
    return lambda inputs: eager(graph, inputs)


class Regression(nn.Module):
    """One number, near 0 for some inputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0))
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) * self.scale


def _wrong_constant(model: Any) -> None:
    model.scale.mul_(1.001)


def _dropped_term(model: Any) -> None:
    model.layers[2].weight[0, 17] = 0


@pytest.mark.parametrize("fault", [_wrong_constant, _dropped_term])
def test_faults_in_one_number(fault: Callable[[Any], None]) -> None:
    arguments = (torch.randn(1, 64),)
    graph = capture(Regression().eval(), arguments)
    assert not refused(graph, lambda inputs: eager(graph, inputs))
    assert refused(graph, with_weights(Regression().eval(), arguments, fault))


def test_one_number_with_other_roundings() -> None:
    """Sums in another order are right, at any of many inputs."""
    model = Regression().eval()
    graph = capture(model, (torch.randn(1, 64),))
    turned = Regression().eval()
    with torch.no_grad():
        turned.layers[2].weight.copy_(turned.layers[2].weight.flip(1))

    def run(inputs: list[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            hidden = turned.layers[1](turned.layers[0](inputs[0])).flip(1)
            return [turned.layers[2](hidden).flatten()]

    for seed in range(40):
        verify(graph, run, seed=seed)


def _places(x: Tensor) -> tuple[Tensor, ...]:
    return (*x.topk(5, 1), x.argsort(1), x.argmax(1), x.median(1).indices)


def test_indices_of_equal_elements() -> None:
    """Any order of equal elements is right, and no other order is."""
    graph = capture(_places, (torch.randint(0, 3, (4, 40)),))

    def run(inputs: list[Tensor], change: Callable[[Tensor], Tensor]) -> list[Tensor]:
        (x,) = inputs
        n = x.shape[1] - 1
        last = x.flip(1)
        values, places = last.sort(dim=1, descending=True, stable=True)
        order = n - last.argsort(dim=1, stable=True)
        median = n - last.sort(dim=1, stable=True).indices[:, n // 2]
        return [values[:, :5], n - places[:, :5], change(order), n - last.argmax(1), median]

    assert not refused(graph, lambda inputs: run(inputs, lambda t: t))
    assert refused(graph, lambda inputs: run(inputs, lambda t: (t + 1) % 40))
    assert refused(graph, lambda inputs: run(inputs, lambda t: t[:, :1].expand(-1, 40)))
    assert refused(graph, lambda inputs: run(inputs, lambda t: t + 40))


def _stable(x: Tensor) -> Tensor:
    return x.argsort(dim=1, stable=True)


def test_a_stable_sort_keeps_the_order() -> None:
    graph = capture(_stable, (torch.randint(0, 3, (4, 40)),))
    assert refused(graph, lambda inputs: [39 - inputs[0].flip(1).argsort(dim=1, stable=True)])


def _routed(x: Tensor, table: Tensor) -> Tensor:
    return table[x.round().topk(2, 1).indices]


def test_what_hangs_on_the_order_of_equal_elements() -> None:
    """Places that the graph goes on with: another order of equal elements is right, another row is not."""
    graph = capture(_routed, (torch.randn(40, 20) * 2, torch.randn(20, 8)))

    def run(inputs: list[Tensor], off: int) -> list[Tensor]:
        x, table = inputs
        places = 19 - x.round().flip(1).sort(dim=1, descending=True, stable=True).indices[:, :2]
        return [table[(places + off) % 20]]

    assert not refused(graph, lambda inputs: run(inputs, 0))
    assert refused(graph, lambda inputs: run(inputs, 1))


def _rounded(x: Tensor) -> Tensor:
    return (x * 3).round() + x.argmax(1, keepdim=True)


def test_numbers_between_two_roundings() -> None:
    """A package that rounds a hair otherwise gets another whole number now and then."""
    graph = capture(_rounded, (torch.randn(64, 64).bfloat16(),))

    def run(inputs: list[Tensor], factor: float) -> list[Tensor]:
        (x,) = inputs
        return [((x.float() * 3).round() * factor + x.argmax(1, keepdim=True)).bfloat16()]

    assert not refused(graph, lambda inputs: run(inputs, 1.0))
    assert refused(graph, lambda inputs: run(inputs, 1.1))


def _counted(y: Tensor, i: Tensor) -> Tensor:
    y = y.clone()
    y[i] += 1
    return y


def test_a_race_on_duplicates() -> None:
    """The example's places are all different; those that are drawn are not."""
    graph = capture(_counted, (torch.randn(40), torch.randperm(40)[:8]))
    assert not refused(graph, lambda inputs: eager(graph, inputs))
    assert refused(graph, lambda inputs: [inputs[0].index_add(0, inputs[1], torch.ones(8))])


def _overflowing(x: Tensor) -> Tensor:
    return (x + x).float().mean(-1)


def test_overflow_in_eager() -> None:
    """Values that 16 bits do not hold: the package is compared at smaller ones, and the certificate is finite."""
    graph = capture(_overflowing, (torch.full((2, 8), 40000.0, dtype=torch.float16),))
    result = verify(graph, lambda inputs: eager(graph, inputs))
    assert all(math.isfinite(e) for case in result.cases for e in (*case.errors, *case.eager, *case.allowed))
    certificate = parse(serialize(make_certificate(result.references())))
    assert all(math.isfinite(output.tolerance) for case in certificate.cases for output in case.outputs)
    assert refused(graph, lambda inputs: [y * 1.01 for y in eager(graph, inputs)])


def _always_overflowing(x: Tensor) -> Tensor:
    return x * 0 + torch.tensor(60000.0, dtype=torch.float16) * 2


def test_overflow_at_all_inputs() -> None:
    graph = capture(_always_overflowing, (torch.randn(8).half(),))
    (case,) = verify(graph, lambda inputs: eager(graph, inputs)).cases
    assert math.isfinite(case.allowed[0])
    assert refused(graph, lambda inputs: [y.nan_to_num(1.0, 1.0) for y in eager(graph, inputs)])


def test_operators_without_a_float64_form() -> None:
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.rand(16) * 0.01 + 0.001)
            self.register_buffer("zero", torch.zeros(16, dtype=torch.int32))

        def forward(self, x: Tensor) -> Tensor:
            return torch.fake_quantize_per_channel_affine(x, self.scale, self.zero, 1, -127, 127) / 3

    graph = capture(Quantized(), (torch.randn(4, 16),))
    assert not refused(graph, lambda inputs: eager(graph, inputs))
    assert refused(graph, lambda inputs: [y * 1.001 for y in eager(graph, inputs)])


class Experts(nn.Module):
    """A router in 16 bits: now and then two experts are equally good, and eager's rounding takes the other one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(32, 16)
        self.weight = nn.Parameter(torch.randn(16, 32, 32) / 6)

    def forward(self, x: Tensor, off: int = 0) -> Tensor:
        scores, chosen = self.router(x).softmax(-1).topk(2, -1)
        rows = self.weight[(chosen + off) % 16]
        return (torch.einsum("nd,nked->nke", x, rows) * scores[..., None]).sum(1)


def _wrong_expert(model: Any) -> None:
    model.weight[3] *= 1.05


def test_experts() -> None:
    """Tokens whose expert depends on rounding are left out; eager's jumps do not widen what others may be off by."""
    graph = capture(Experts().bfloat16().eval(), (torch.randn(64, 32).bfloat16(),))
    wide, wrong = Experts().eval(), Experts().eval()
    with torch.no_grad():
        for model in (wide, wrong):
            model.load_state_dict({name: t.bfloat16().float() for name, t in model.state_dict().items()})
        _wrong_expert(wrong)

    def run(model: Any, inputs: list[Tensor], off: int = 0) -> list[Tensor]:
        with torch.no_grad():
            return [model(inputs[0].float(), off).bfloat16()]

    results = [verify(graph, lambda inputs: run(wide, inputs), seed=seed) for seed in range(4)]
    assert all(case.allowed[0] < 0.01 for result in results for case in result.cases)
    assert any(case.doubtful[0] for result in results for case in result.cases)
    assert refused(graph, lambda inputs: run(wide, inputs, 1))
    assert refused(graph, lambda inputs: run(wrong, inputs))
