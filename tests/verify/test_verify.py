"""Comparison and verdict: what counts as equal, what is refused and how it is said."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mycc.compiler.capture import ModelGraph, capture
from mycc.compiler.model.random_operators import draws_random_numbers
from mycc.compiler.verify import eager, error, verify
from mycc.compiler.verify.check_inputs import Draw, draws, input_checks, make_input, other_sizes
from mycc.runtime.certificate import InputCheck, make_certificate, parse, serialize
from mycc.runtime.errors import CompileError
from mycc.runtime.generator import Fill, fill_tensor
from torch import nn

Dim = torch.export.Dim


def test_error_is_relative() -> None:
    r = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert error(torch.tensor([3.0, 4.0]), r) == 0.0
    assert error(torch.tensor([3.0, 4.5]), r) == pytest.approx(0.1)
    assert error(torch.tensor([0.5]), torch.zeros(1, dtype=torch.float64)) == 0.5
    assert error(torch.empty(0), torch.empty(0)) == 0.0


def test_error_of_integers_is_the_fraction_that_differs() -> None:
    assert error(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5])) == 0.25
    assert error(torch.tensor([True, False]), torch.tensor([True, False])) == 0.0


@pytest.mark.parametrize(
    ("found", "wanted", "result"),
    [
        ([math.nan, 1.0], [math.nan, 1.0], 0.0),
        ([math.inf, 1.0], [math.inf, 1.0], 0.0),
        ([math.inf, 1.0], [-math.inf, 1.0], math.inf),
        ([math.nan, 1.0], [2.0, 1.0], math.inf),
        ([2.0, 1.0], [math.nan, 1.0], math.inf),
        ([math.inf, 1.0], [1.0, 1.0], math.inf),
        ([math.inf, 1.0], [1e39, 1.0], 0.0),  # beyond float32
        ([-math.inf, 1.0], [1e39, 1.0], math.inf),
    ],
)
def test_error_of_odd_values(found: list[float], wanted: list[float], result: float) -> None:
    assert error(torch.tensor(found), torch.tensor(wanted, dtype=torch.float64)) == result


def test_error_of_another_shape() -> None:
    assert error(torch.zeros(2, 1), torch.zeros(2)) == math.inf


class Two(nn.Module):
    """A float output and an integer one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(x) * ids[:, None]
        return {"logits": y, "best": y.argmax(-1)}


@pytest.fixture
def graph() -> ModelGraph:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 8) * 3 + 1, torch.randint(5, 9, (4,)))
    batch = Dim("batch", min=1, max=16)
    return capture(Two().eval(), inputs, dynamic_shapes=({0: batch}, {0: batch}))


def test_two_sets_of_sizes(graph: ModelGraph) -> None:
    result = verify(graph, lambda inputs: eager(graph, inputs))
    assert draws(graph) == [Draw({"batch": 4}, 0, edges=True), Draw({"batch": 1}, 1)]
    assert [case.sizes for case in result.cases] == [{"batch": 4}, {"batch": 1}]
    assert result.error == result.eager < 1e-6
    assert next(case.names for case in result.cases) == tuple(spec.name for spec in graph.outputs)


def test_given_sizes(graph: ModelGraph) -> None:
    seen: list[Any] = []
    verify(graph, lambda inputs: seen.append(inputs[0].shape) or eager(graph, inputs), shapes=[{"batch": 7}])
    assert seen == [(7, 8)]


def test_refusal_names_the_output_and_how_far(graph: ModelGraph) -> None:
    def wrong(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        outputs = eager(graph, inputs)
        return [y * 1.001 if y.is_floating_point() else y for y in outputs]

    with pytest.raises(CompileError) as refusal:
        verify(graph, wrong)
    assert refusal.value.message == "entry point 'forward': the compiled code is not as accurate as eager torch"
    assert len(refusal.value.details) == 2
    assert "logits at batch=4: error 1.0e-03, eager" in refusal.value.details[0]
    assert "logits at batch=1" in refusal.value.details[1]
    assert "--no-verify" in str(refusal.value)


def test_refusal_says_when_runs_differ(graph: ModelGraph) -> None:
    """Threads or memory are at fault then: whoever looks into it needs to know."""
    runs = 0

    def unsteady(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        nonlocal runs
        runs += 1
        logits, best = eager(graph, inputs)
        logits[1, 2] += 1.0 / runs
        return [logits, best]

    with pytest.raises(CompileError, match="threads or memory") as refusal:
        verify(graph, unsteady, shapes=[{"batch": 4}])
    assert "logits: a second run of the package differs in 1 of 32 elements, the first at [1, 2]" in str(refusal.value)


def test_a_small_output_is_judged_by_several_inputs(graph: ModelGraph) -> None:
    calls = []

    def off_by(factor: float, times: int) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
        def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            calls.append(inputs[0])
            scale = 1 + (factor if len(calls) <= times else 0.0)
            return [y * scale if y.is_floating_point() else y for y in eager(graph, inputs)]

        return run

    (case,) = verify(graph, off_by(6e-7, times=1), shapes=[{"batch": 4}]).cases
    assert len(calls) == case.runs > 1
    assert len({x.sum().item() for x in calls}) == len(calls)
    assert case.single[0] > case.errors[0]
    assert case.as_reference("forward").tolerances[0] > case.single[0]
    with pytest.raises(CompileError, match="not as accurate"):
        verify(graph, off_by(4e-6, times=1000), shapes=[{"batch": 4}])


def test_nan_is_refused(graph: ModelGraph) -> None:
    with pytest.raises(CompileError, match="error inf"):
        verify(graph, lambda inputs: [y * math.nan if y.is_floating_point() else y for y in eager(graph, inputs)])


def test_wrong_integers_are_refused(graph: ModelGraph) -> None:
    with pytest.raises(CompileError, match="best at batch=4"):
        verify(graph, lambda inputs: [y if y.is_floating_point() else y + 1 for y in eager(graph, inputs)])


def test_missing_output_is_refused(graph: ModelGraph) -> None:
    with pytest.raises(CompileError, match="1 outputs, the model has 2"):
        verify(graph, lambda inputs: eager(graph, inputs)[:1])


def test_the_package_cannot_change_the_inputs(graph: ModelGraph) -> None:
    """An entry point that scribbled over its inputs must not make its own reference."""

    def scribbling(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        outputs = eager(graph, inputs)
        inputs[0].zero_()
        return outputs

    verify(graph, scribbling)


def test_certificate(graph: ModelGraph) -> None:
    """What verification hands on: inputs that anyone can make again, outputs, tolerances."""
    result = verify(graph, lambda inputs: eager(graph, inputs))
    certificate = parse(serialize(make_certificate(result.references())))
    case = certificate.cases[1]
    assert (case.entry, case.sizes) == ("forward", {"batch": 1})
    inputs = [make_input(check) for check in case.inputs]
    for output, y in zip(case.outputs, eager(graph, inputs), strict=True):
        found = torch.from_numpy(np.array(output.samples)).reshape(output.shape)
        assert error(y, found.to(torch.int64) if not y.is_floating_point() else found) <= output.tolerance + 1e-12


def test_inputs_resemble_the_examples(graph: ModelGraph) -> None:
    x, ids = (make_input(check) for check in input_checks(graph, {"batch": 16}))
    assert x.dtype == torch.float32
    assert abs(float(x.mean()) - 1.0) < 1.0
    assert 2.0 < float(x.std()) < 4.0
    low, high = graph.examples[1].aminmax()
    assert low <= ids.min()
    assert ids.max() <= high


def test_bfloat_inputs() -> None:
    check = InputCheck("bf16", (3, 4), Fill(7))
    x = make_input(check)
    assert x.dtype == torch.bfloat16
    assert torch.equal(x.float(), torch.from_numpy(fill_tensor("f32", (3, 4), Fill(7))).bfloat16().float())


def test_other_sizes_differ_from_the_examples(graph: ModelGraph) -> None:
    assert other_sizes(graph) == {"batch": 1}
    static = capture(nn.Linear(3, 3).eval(), (torch.rand(2, 3),))
    assert other_sizes(static) is None
    assert draws(static) == [Draw({}, 0)]
    indices = capture(nn.Embedding(3, 3), (torch.tensor([2, 0]),))
    assert draws(indices, seed=2) == [Draw({}, 2000, edges=True)]


@pytest.mark.parametrize(
    ("function", "random"),
    [
        (lambda x: nn.functional.dropout(x, 0.1, training=False), False),
        (lambda x: nn.functional.scaled_dot_product_attention(x, x, x), False),
        (lambda x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5), True),
        (lambda x: x + torch.rand_like(x), True),
        (lambda x: torch.bernoulli(x.sigmoid()), True),
    ],
)
def test_what_draws_random_numbers(function: Callable[..., Any], random: bool) -> None:
    graph = capture(function, (torch.randn(1, 2, 4, 8),))
    assert draws_random_numbers(graph) is random


def test_what_torch_refuses_when_it_runs() -> None:
    """A model that torch exports, but does not run: the message is torch's, with the line."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.max(0).values

    graph = capture(forward, (torch.zeros(0, 4),))
    with pytest.raises(CompileError, match=r"torch itself does not run(.|\n)*test_verify.py:\d+  return x.max"):
        verify(graph, lambda inputs: [torch.zeros(4)])
