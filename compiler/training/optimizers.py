"""The table of optimizers: what each keeps, which numbers a step takes, and the update as a function of tensors.

A row's formulas are functions of torch operators on values. `numbers` runs once for each parameter group and step, on
float64 tensors of no dimension; `update` runs once for each parameter, in float32 at least. Both follow the order of
operations of torch.optim, so that a step rounds as eager's does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .lion import Lion

__all__ = ["TABLE", "Counter", "Flags", "Optimizer", "Slot", "row_of"]

Flags = Mapping[str, Any]  #: settings of a parameter group that choose the formula: they are fixed at compile time
Numbers = dict[str, Tensor]


@dataclass(frozen=True)
class Slot:
    """A tensor that is kept for a parameter, under torch's name of it.

    shape: of the parameter's shape, its own; fill: the setting that holds its first value, or "" for zero; square:
    whether it is never negative.
    """

    name: str
    shape: Callable[[Sequence[int]], Sequence[int]] = tuple
    fill: str = ""
    square: bool = False


@dataclass(frozen=True)
class Counter:
    """A number that is kept for a parameter group: its first value, and one in the middle of a run, to verify with."""

    name: str
    first: float
    dtype: torch.dtype
    usual: float


STEP = Counter("step", 0, torch.int64, 10)


@dataclass(frozen=True)
class Optimizer:
    """A row of the table.

    Attributes:
        name: the class name of torch.optim's.
        hyper: what the step takes as arguments -> where a parameter group of torch has it: a key, or a key and a place.
        flags: settings that choose the formula.
        slots: the tensors kept for a parameter of a shape.
        numbers: (arguments, the counters' values after this step, flags) -> the numbers of the update.
        update: (parameter, gradient, its slots, numbers, flags) -> the new parameter and slots.
        counters: kept for a group, the first one counts steps.
        count: (arguments, counters) -> the counters' next values, beside the first.
        refuses: what of a parameter the formula does not take; "" for none.
    """

    name: str
    hyper: Mapping[str, str | tuple[str, int]]
    flags: tuple[str, ...]
    slots: Callable[[Flags, Sequence[int]], Sequence[Slot]]
    numbers: Callable[[Numbers, Numbers, Flags], Numbers]
    update: Callable[[Tensor, Tensor, Numbers, Numbers, Flags], tuple[Tensor, Numbers]]
    counters: tuple[Counter, ...] = (STEP,)
    count: Callable[[Numbers, Numbers], Numbers] = field(default=lambda h, k: {})
    refuses: Callable[[Sequence[int]], str] = field(default=lambda shape: "")


_BETAS: dict[str, str | tuple[str, int]] = {
    "lr": "lr", "beta1": ("betas", 0), "beta2": ("betas", 1), "eps": "eps", "weight_decay": "weight_decay",
}  # fmt: skip


def _signed(g: Tensor, f: Flags) -> Tensor:
    return -g if f.get("maximize") else g


def _decayed(p: Tensor, g: Tensor, c: Numbers, f: Flags) -> tuple[Tensor, Tensor]:
    """Weight decay: apart from the gradient, which shrinks the parameter, or as a part of it."""
    if f.get("decoupled_weight_decay"):
        return p * c["keep"], g
    return p, g + p * c["weight_decay"]


def _shrink(h: Numbers) -> Tensor:
    return 1 - h["lr"] * h["weight_decay"]


def _lerp(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    return a + (b - a) * weight


def _square_average(s: Numbers, g: Tensor, c: Numbers, name: str = "exp_avg_sq") -> Tensor:
    return s[name] * c["keep_squares"] + g * g * c["add_square"]


# SGD -----------------------------------------------------------------------------------------------------------------
def _sgd_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    return [Slot("momentum_buffer")] if f["momentum"] else []


def _sgd_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    """The first step takes the gradient itself for the buffer."""
    first = k["step"] == 1
    keep = torch.where(first, 0.0, h["momentum"])
    add = torch.where(first, 1.0, 1 - h["dampening"])
    return {"lr": h["lr"], "weight_decay": h["weight_decay"], "momentum": h["momentum"], "keep": keep, "add": add}


def _sgd(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    g = _signed(g, f) + p * c["weight_decay"]
    if not f["momentum"]:
        return p - g * c["lr"], {}
    buffer = s["momentum_buffer"] * c["keep"] + g * c["add"]
    move = g + buffer * c["momentum"] if f["nesterov"] else buffer
    return p - move * c["lr"], {"momentum_buffer": buffer}


# Adam and its kin ----------------------------------------------------------------------------------------------------
def _adam_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    largest = [Slot("max_exp_avg_sq", square=True)] if f.get("amsgrad") else []
    return [Slot("exp_avg"), Slot("exp_avg_sq", square=True), *largest]


def _moments(h: Numbers) -> Numbers:
    return {
        "add": 1 - h["beta1"], "keep_squares": h["beta2"], "add_square": 1 - h["beta2"], "eps": h["eps"],
        "weight_decay": h["weight_decay"], "keep": _shrink(h),
    }  # fmt: skip


def _adam_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    size = h["lr"] / (1 - h["beta1"] ** k["step"])
    root = (1 - h["beta2"] ** k["step"]).sqrt()
    return {**_moments(h), "size": size, "root": root}


def _adam(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    p, g = _decayed(p, _signed(g, f), c, f)
    new = {"exp_avg": _lerp(s["exp_avg"], g, c["add"]), "exp_avg_sq": _square_average(s, g, c)}
    squares = new["exp_avg_sq"]
    if f.get("amsgrad"):
        squares = new["max_exp_avg_sq"] = torch.maximum(s["max_exp_avg_sq"], squares)
    return p - c["size"] * (new["exp_avg"] / (squares.sqrt() / c["root"] + c["eps"])), new


def _nadam_count(h: Numbers, k: Numbers) -> Numbers:
    return {"mu_product": k["mu_product"] * _mu(h, k["step"])}


def _mu(h: Numbers, step: Tensor) -> Tensor:
    return h["beta1"] * (1 - 0.5 * 0.96 ** (step * h["momentum_decay"]))


def _nadam_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    mu, after = _mu(h, k["step"]), _mu(h, k["step"] + 1)
    return {
        **_moments(h),
        "correction": 1 - h["beta2"] ** k["step"],
        "of_gradient": h["lr"] * (1 - mu) / (1 - k["mu_product"]),
        "of_average": h["lr"] * after / (1 - k["mu_product"] * after),
    }


def _nadam(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    p, g = _decayed(p, _signed(g, f), c, f)
    average, squares = _lerp(s["exp_avg"], g, c["add"]), _square_average(s, g, c)
    under = (squares / c["correction"]).sqrt() + c["eps"]
    p = p - c["of_gradient"] * (g / under) - c["of_average"] * (average / under)
    return p, {"exp_avg": average, "exp_avg_sq": squares}


def _radam_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    """Steps before the variance can be told take the average alone."""
    step, b2 = k["step"], h["beta2"]
    correction = 1 - b2**step
    most = 2 / (1 - b2) - 1
    length = most - 2 * step * b2**step / correction
    known = length > 5
    safe = torch.where(known, length, 6.0)
    rectified = ((safe - 4) * (safe - 2) * most / ((most - 4) * (most - 2) * safe)).sqrt()
    size = h["lr"] / (1 - h["beta1"] ** step)
    adaptive = torch.where(known, size * correction.sqrt() * rectified, 0.0)
    return {**_moments(h), "adaptive": adaptive, "plain": torch.where(known, 0.0, size)}


def _radam(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    p, g = _decayed(p, _signed(g, f), c, f)
    average, squares = _lerp(s["exp_avg"], g, c["add"]), _square_average(s, g, c)
    move = average * (c["adaptive"] / (squares.sqrt() + c["eps"]) + c["plain"])
    return p - move, {"exp_avg": average, "exp_avg_sq": squares}


def _adamax_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    return [Slot("exp_avg"), Slot("exp_inf", square=True)]


def _adamax_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    return {**_moments(h), "size": h["lr"] / (1 - h["beta1"] ** k["step"])}


def _adamax(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    g = _signed(g, f) + p * c["weight_decay"]
    average = _lerp(s["exp_avg"], g, c["add"])
    largest = torch.maximum(s["exp_inf"] * c["keep_squares"], g.abs() + c["eps"])
    return p - c["size"] * (average / largest), {"exp_avg": average, "exp_inf": largest}


def _lion_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    return [Slot("exp_avg")]


def _lion_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    return {"lr": h["lr"], "of_update": 1 - h["beta1"], "add": 1 - h["beta2"], "keep": _shrink(h)}


def _lion(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    """Chen et al., Symbolic Discovery of Optimization Algorithms (2023), algorithm 2."""
    move = _lerp(s["exp_avg"], g, c["of_update"]).sign()
    return p * c["keep"] - c["lr"] * move, {"exp_avg": _lerp(s["exp_avg"], g, c["add"])}


# squares of gradients ------------------------------------------------------------------------------------------------
def _rmsprop_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    names = [*(["momentum_buffer"] if f["momentum"] else []), *(["grad_avg"] if f["centered"] else [])]
    return [Slot("square_avg", square=True), *(Slot(name) for name in names)]


def _rmsprop_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    own = {name: h[name] for name in ("lr", "eps", "weight_decay", "momentum")}
    return {**own, "keep_squares": h["alpha"], "add_square": 1 - h["alpha"]}


def _rmsprop(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    g = _signed(g, f) + p * c["weight_decay"]
    new = {"square_avg": _square_average(s, g, c, "square_avg")}
    spread = new["square_avg"]
    if f["centered"]:
        mean = new["grad_avg"] = _lerp(s["grad_avg"], g, c["add_square"])
        spread = spread - mean * mean
    move = g / (spread.sqrt() + c["eps"])
    if f["momentum"]:
        move = new["momentum_buffer"] = s["momentum_buffer"] * c["momentum"] + move
    return p - move * c["lr"], new


def _adagrad_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    return [Slot("sum", fill="initial_accumulator_value", square=True)]


def _adagrad_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    size = h["lr"] / (1 + (k["step"] - 1) * h["lr_decay"])
    return {"size": size, "eps": h["eps"], "weight_decay": h["weight_decay"]}


def _adagrad(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    g = _signed(g, f) + p * c["weight_decay"]
    total = s["sum"] + g * g
    return p - c["size"] * (g / (total.sqrt() + c["eps"])), {"sum": total}


def _adadelta_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    return [Slot("square_avg", square=True), Slot("acc_delta", square=True)]


def _adadelta_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    own = {name: h[name] for name in ("lr", "eps", "weight_decay")}
    return {**own, "keep_squares": h["rho"], "add_square": 1 - h["rho"]}


def _adadelta(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    g = _signed(g, f) + p * c["weight_decay"]
    squares = _square_average(s, g, c, "square_avg")
    delta = (s["acc_delta"] + c["eps"]).sqrt() / (squares + c["eps"]).sqrt() * g
    return p - delta * c["lr"], {"square_avg": squares, "acc_delta": _square_average(s, delta, c, "acc_delta")}


def _adafactor_slots(f: Flags, shape: Sequence[int]) -> Sequence[Slot]:
    """Of a matrix the means of its rows and of its columns; of a vector all."""
    if len(shape) < 2:
        return [Slot("variance", square=True)]
    rows = Slot("row_var", lambda s: (*s[:-1], 1), square=True)
    return [rows, Slot("col_var", lambda s: (*s[:-2], 1, s[-1]), square=True)]


def _adafactor_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    own = {name: h[name] for name in ("eps1", "eps2", "d")}
    rate = torch.minimum(h["lr"], 1 / k["step"].sqrt())
    return {**own, "add": k["step"] ** h["beta2_decay"], "rate": rate, "keep": _shrink(h)}


def _adafactor(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    g = _signed(g, f)
    root = math.sqrt(max(p.numel(), 1))
    rate = torch.maximum(c["eps2"], _norm(p) / root) * c["rate"]
    p = p * c["keep"]
    if g.dim() > 1:
        rows = _lerp(s["row_var"], (g * g).mean(-1, keepdim=True), c["add"])
        columns = _lerp(s["col_var"], (g * g).mean(-2, keepdim=True), c["add"])
        spread = rows * columns / torch.maximum(rows.mean(-2, keepdim=True), c["eps1"])
        new = {"row_var": rows, "col_var": columns}
    else:
        spread = _lerp(s["variance"], g * g, c["add"])
        new = {"variance": spread}
    move = torch.maximum(spread, c["eps1"] * c["eps1"]).rsqrt() * g
    return p - move * (rate / (_norm(move) / (root * c["d"])).clamp(min=1.0)), new


def _norm(x: Tensor) -> Tensor:
    return (x * x).sum().sqrt()


# Muon ----------------------------------------------------------------------------------------------------------------
def _muon_numbers(h: Numbers, k: Numbers, f: Flags) -> Numbers:
    return {"lr": h["lr"], "add": 1 - h["momentum"], "momentum": h["momentum"], "keep": _shrink(h), "eps": h["eps"]}


def _muon(p: Tensor, g: Tensor, s: Numbers, c: Numbers, f: Flags) -> tuple[Tensor, Numbers]:
    buffer = _lerp(s["momentum_buffer"], g, c["add"])
    move = _lerp(g, buffer, c["momentum"]) if f["nesterov"] else buffer
    move = _orthogonal(move, c["eps"], f["ns_coefficients"], f["ns_steps"]).to(p.dtype)
    rows, columns = p.shape
    scale = {"match_rms_adamw": 0.2 * math.sqrt(max(rows, columns))}.get(
        f["adjust_lr_fn"] or "original", math.sqrt(max(1.0, rows / max(columns, 1)))
    )
    return p * c["keep"] - move * (c["lr"] * scale), {"momentum_buffer": buffer}


def _orthogonal(x: Tensor, eps: Tensor, coefficients: Sequence[float], steps: int) -> Tensor:
    """Newton-Schulz iterations towards the orthogonal matrix nearest to x, in bfloat16 as torch.optim.Muon has them."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    y = x.to(torch.bfloat16)
    y = y.t() if tall else y
    size = _norm(y.to(torch.float32)).to(torch.bfloat16)
    y = y / torch.maximum(size, eps.to(torch.bfloat16))
    for _ in range(steps):
        gram = y @ y.t()
        y = torch.addmm(y, torch.addmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y.t() if tall else y


def _only_matrices(shape: Sequence[int]) -> str:
    return "" if len(shape) == 2 else "Muon updates matrices"


_ADAM_FLAGS = ("amsgrad", "maximize", "decoupled_weight_decay")
_WEIGHT_DECAY: dict[str, str | tuple[str, int]] = {"lr": "lr", "weight_decay": "weight_decay"}
_ADAFACTOR: dict[str, str | tuple[str, int]] = {
    **_WEIGHT_DECAY, "beta2_decay": "beta2_decay", "eps1": ("eps", 0), "eps2": ("eps", 1), "d": "d",
}  # fmt: skip
_SGD: dict[str, str | tuple[str, int]] = {**_WEIGHT_DECAY, "momentum": "momentum", "dampening": "dampening"}
_RMSPROP: dict[str, str | tuple[str, int]] = {
    **_WEIGHT_DECAY, "alpha": "alpha", "eps": "eps", "momentum": "momentum",
}  # fmt: skip
_LION: dict[str, str | tuple[str, int]] = {**_WEIGHT_DECAY, "beta1": ("betas", 0), "beta2": ("betas", 1)}
_MU = Counter("mu_product", 1.0, torch.float64, 0.25)

TABLE: tuple[Optimizer, ...] = (
    Optimizer("SGD", _SGD, ("momentum", "nesterov", "maximize"), _sgd_slots, _sgd_numbers, _sgd),
    Optimizer("Adam", _BETAS, _ADAM_FLAGS, _adam_slots, _adam_numbers, _adam),
    Optimizer("AdamW", _BETAS, _ADAM_FLAGS, _adam_slots, _adam_numbers, _adam),
    Optimizer(
        "NAdam", {**_BETAS, "momentum_decay": "momentum_decay"}, ("maximize", "decoupled_weight_decay"),
        _adam_slots, _nadam_numbers, _nadam, (STEP, _MU), _nadam_count,
    ),
    Optimizer("RAdam", _BETAS, ("maximize", "decoupled_weight_decay"), _adam_slots, _radam_numbers, _radam),
    Optimizer("Adamax", _BETAS, ("maximize",), _adamax_slots, _adamax_numbers, _adamax),
    Optimizer(
        "RMSprop", _RMSPROP, ("momentum", "centered", "maximize"), _rmsprop_slots, _rmsprop_numbers, _rmsprop
    ),
    Optimizer(
        "Adagrad", {**_WEIGHT_DECAY, "lr_decay": "lr_decay", "eps": "eps"}, ("maximize", "initial_accumulator_value"),
        _adagrad_slots, _adagrad_numbers, _adagrad,
    ),
    Optimizer(
        "Adadelta", {**_WEIGHT_DECAY, "rho": "rho", "eps": "eps"}, ("maximize",),
        _adadelta_slots, _adadelta_numbers, _adadelta,
    ),
    Optimizer("Adafactor", _ADAFACTOR, ("maximize",), _adafactor_slots, _adafactor_numbers, _adafactor),
    Optimizer(
        "Muon", {**_WEIGHT_DECAY, "momentum": "momentum", "eps": "eps"},
        ("nesterov", "ns_coefficients", "ns_steps", "adjust_lr_fn"),
        lambda f, shape: [Slot("momentum_buffer")], _muon_numbers, _muon, refuses=_only_matrices,
    ),
    Optimizer("Lion", _LION, (), _lion_slots, _lion_numbers, _lion),
)  # fmt: skip


def row_of(optimizer: torch.optim.Optimizer) -> Optimizer | None:
    """The row for an optimizer; None for one that has none, such as a class of the user's own of the same name."""
    homes = {row.name: getattr(torch.optim, row.name, Lion) for row in TABLE}
    return next((row for row in TABLE if type(optimizer) is homes[row.name]), None)
