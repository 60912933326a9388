"""Pass: gelu and silu where a model spells them out."""

from __future__ import annotations

import math

from ..node import Node
from ..patterns import (
    Product,
    between,
    close,
    dtype,
    is_op,
    plus_number,
    product,
)
from ..work import Work, aten, is_erased

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_CUBE = 0.044715


def recognize_activations(work: Work) -> dict[str, int]:
    """mul(mul(x, 0.5), 1 + erf(x / sqrt(2)))                                       ->   gelu(x)
       mul(mul(x, 0.5), 1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))               ->   gelu(x, approximate="tanh")
       mul(x, sigmoid(x))                                                           ->   silu(x)

    In any order of the factors, with the cube as pow or as products, or as x * (1 + 0.044715 * x * x) (Hendrycks and
    Gimpel, Gaussian Error Linear Units, 2016). Constants may differ by 1e-6, the rounding of a few digits less. Needs
    NORMAL; establishes ACTIVATIONS.
    """
    gelus = silus = 0
    for node in work.nodes(backwards=True):
        if not is_op(node, "mul", "div") or not dtype(node).is_floating_point:
            continue
        found = product(node)
        gelus += _gelu(work, node, found)
        if not is_erased(node):
            silus += _silu(work, node, found)
    counts = {"gelus recognised": gelus, "silus recognised": silus}
    return {k: v for k, v in counts.items() if v}


def _gelu(work: Work, node: Node, found: Product) -> bool:
    if len(found.factors) != 2 or not close(found.scalar, 0.5):
        return False
    for x, bell in (found.factors, found.factors[::-1]):
        shifted = plus_number(bell)
        if shifted is None or shifted.offset != 1.0 or len(bell.users) != 1:
            continue
        if is_op(shifted.term, "erf") and _is_scaled(shifted.term.args[0], x, _SQRT_HALF):
            return _replace(work, node, aten.gelu.default, (x,), {})
        if is_op(shifted.term, "tanh") and _is_cubic(shifted.term.args[0], x):
            return _replace(work, node, aten.gelu.default, (x,), {"approximate": "tanh"})
    return False


def _is_scaled(node: Node, x: Node, factor: float) -> bool:
    found = product(node)
    return found.factors == (x,) and close(found.scalar, factor)


def _is_cubic(node: Node, x: Node) -> bool:
    """sqrt(2/pi) * (x + 0.044715 * x**3), or with x taken out of the sum."""
    found = product(node)
    if not close(found.scalar, _SQRT_2_OVER_PI):
        return False
    if len(found.factors) == 1:
        return _is_sum(found.factors[0], x)
    if len(found.factors) == 2 and x in found.factors:
        rest = found.factors[1] if found.factors[0] is x else found.factors[0]
        shifted = plus_number(rest)
        return shifted is not None and shifted.offset == 1.0 and _is_power(shifted.term, x, 2)
    return False


def _is_sum(node: Node, x: Node) -> bool:
    if not is_op(node, "add") or len(node.args) != 2 or node.kwargs or x not in node.args:
        return False
    rest = node.args[1] if node.args[0] is x else node.args[0]
    return isinstance(rest, Node) and _is_power(rest, x, 3)


def _is_power(node: Node, x: Node, power: int) -> bool:
    """0.044715 * x**power."""
    found = product(node)
    return found.factors == (x,) * power and close(found.scalar, _CUBE)


def _silu(work: Work, node: Node, found: Product) -> bool:
    if len(found.factors) != 2 or found.scalar != 1.0:
        return False
    for x, gate in (found.factors, found.factors[::-1]):
        if is_op(gate, "sigmoid") and gate.args[0] is x and len(gate.users) == 1:
            return _replace(work, node, aten.silu.default, (x,), {})
    return False


def _replace(work: Work, node: Node, target: object, args: tuple[Node, ...], kwargs: dict[str, str]) -> bool:
    if dtype(args[0]) != dtype(node):
        return False
    covered = between(node, args[0])
    work.replace(node, work.call(target, args, kwargs, like=node, val=node.meta["val"], covers=covered))
    return True
