"""Lion for training in torch: the optimizer that the table has from its paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Lion"]


class Lion(torch.optim.Optimizer):
    """Chen et al., Symbolic Discovery of Optimization Algorithms (2023), algorithm 2.

    Args:
        params: parameters, or parameter groups.
        lr: the learning rate; about a tenth of AdamW's.
        betas: of the update's average, and of the average that is kept.
        weight_decay: decoupled, as AdamW's; about ten times AdamW's.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
        average, (b1, b2) = state["exp_avg"], group["betas"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(torch.lerp(average, gradient, 1 - b1).sign(), alpha=-group["lr"])
        average.lerp_(gradient, 1 - b2)
