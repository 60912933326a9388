"""The optimizers' table against torch.optim: the same parameters and moments after several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.training.optimizers import TABLE
from mycc.compiler.training.plan import Plan, plan_of
from mycc.compiler.training.update import clipped, counter_name, prepared, slot_name, updated

optim = torch.optim
Make = Callable[[Any], torch.optim.Optimizer]
CASES: dict[str, Make] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd-momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    "sgd-nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adam-amsgrad": lambda p: optim.Adam(p, lr=0.01, betas=(0.8, 0.5), amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), weight_decay=0.1),
    "adamw-maximize": lambda p: optim.AdamW(p, maximize=True),
    "nadam": lambda p: optim.NAdam(p, lr=0.01, weight_decay=0.01),
    "nadam-decoupled": lambda p: optim.NAdam(p, lr=0.01, weight_decay=0.01, decoupled_weight_decay=True),
    "radam": lambda p: optim.RAdam(p, lr=0.01, weight_decay=0.01),
    "adamax": lambda p: optim.Adamax(p, lr=0.01, weight_decay=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, weight_decay=0.01),
    "rmsprop-centered": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.01, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.5, weight_decay=0.1),
    "adafactor": lambda p: optim.Adafactor(p, lr=0.01, weight_decay=0.1),
    "muon": lambda p: optim.Muon([p[0]], lr=0.01),
    "muon-rms": lambda p: optim.Muon([p[0]], lr=0.01, nesterov=False, adjust_lr_fn="match_rms_adamw"),
    "lion": lambda p: mycc.Lion(p, lr=0.01, weight_decay=0.1),
}  # fmt: skip


#: Muon is computed in bfloat16, and NAdam's product of momenta is float32 in torch
WITHIN = {"muon": 2e-2, "nadam": 1e-8}


class Weights(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.randn(6, 4, dtype=torch.float64))
        self.vector = torch.nn.Parameter(torch.randn(5, dtype=torch.float64))
        self.cube = torch.nn.Parameter(torch.randn(2, 3, 4, dtype=torch.float64))


def one_step(plan: Plan, values: dict[str, Any], kept: dict[str, Any], gradients: list[Any]) -> None:
    """Changes `values` and `kept` in place by the table's formula."""
    numbers = {name: torch.tensor(plan.values(name), dtype=torch.float64) for name in plan.hyper}
    parameters = [values[t.name] for t in plan.trained]
    after = updated(plan, parameters, gradients, kept, prepared(plan, kept, numbers))
    values.update(dict(zip([t.name for t in plan.trained], after.parameters, strict=True)))
    kept.update(after.kept)


def start(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    kept = {slot_name(t, slot): value.clone() for t in plan.trained for slot, value in t.kept.items()}
    for i, group in enumerate(plan.groups):
        for c in plan.row.counters:
            kept[counter_name(plan, i, c.name)] = torch.tensor(group.counters[c.name], dtype=c.dtype)
    return {t.name: t.parameter.detach().clone() for t in plan.trained}, kept


@pytest.mark.parametrize("resumed", [False, True], ids=["fresh", "resumed"])
@pytest.mark.parametrize("name", CASES)
def test_a_row_is_torch_s_optimizer(name: str, resumed: bool) -> None:
    torch.manual_seed(0)
    model = Weights()
    optimizer = CASES[name](list(model.parameters()))

    def eager() -> list[torch.Tensor]:
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        for p in trained:
            p.grad = torch.randn_like(p)
        gradients = [p.grad.clone() for p in trained if p.grad is not None]
        optimizer.step()
        return gradients

    for _ in range(3 if resumed else 0):
        eager()
    plan = plan_of(optimizer, model, None)
    values, kept = start(plan)
    for _ in range(7):  # RAdam changes its formula after five
        one_step(plan, values, kept, eager())
    within = WITHIN.get(name.split("-")[0], 1e-11)
    for trained in plan.trained:
        torch.testing.assert_close(values[trained.name], trained.parameter.detach(), rtol=within, atol=within)
        for slot in trained.kept:
            wanted = optimizer.state[trained.parameter][slot]
            torch.testing.assert_close(kept[slot_name(trained, slot)], wanted, rtol=1e-12, atol=1e-12)


def test_every_row_is_tried() -> None:
    model = Weights()
    tried = {type(make(list(model.parameters()))).__name__ for make in CASES.values()}
    assert tried == {row.name for row in TABLE}


def test_groups_have_numbers_of_their_own() -> None:
    torch.manual_seed(0)
    model = Weights()
    rest = [model.vector, model.cube]
    optimizer = optim.AdamW([{"params": [model.matrix], "lr": 0.1, "weight_decay": 0.0}, {"params": rest}], lr=0.01)
    plan = plan_of(optimizer, model, None)
    assert plan.values("lr") == [0.1, 0.01]
    values, kept = start(plan)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    one_step(plan, values, kept, [t.parameter.grad for t in plan.trained])
    optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(values[name], parameter.detach(), rtol=1e-12, atol=1e-12)


def test_clipping_is_torch_s() -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(5, 3), torch.randn(7) * 3]
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g.clone()
    torch.nn.utils.clip_grad_value_(parameters, 1.5)
    torch.nn.utils.clip_grad_norm_(parameters, 0.7)
    found = clipped(gradients, torch.tensor(1.5, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64))
    for p, g in zip(parameters, found, strict=True):
        torch.testing.assert_close(g, p.grad, rtol=1e-6, atol=1e-7)
