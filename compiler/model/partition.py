"""Forward and backward of a joint graph by torch's own min-cut: what the backward keeps costs at most a share of the
memory, and the rest is computed again."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from .equal_nodes import merge_equal_nodes, writes
from .random_operators import draws

__all__ = ["partition"]

_LEAST = 1e-6  # for a budget of 0, with which torch's partitioner would keep no random numbers either


def partition(budget: float, module: fx.GraphModule, inputs: Sequence[Any], **words: Any) -> Any:
    """Both halves as graph modules. Random numbers are kept under every budget: drawn again they would be others.

    Args:
        budget: from 0 to 1.
        module: the joint graph, whose placeholders are named as AOTAutograd names them; it is changed.
        inputs, words: of torch's partitioner.
    """
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    if budget < 1:
        _keep_random_numbers(module)
    own = not writes(module.graph)  # torch's pass imports all of inductor, a quarter of a warm start
    if own:
        merge_equal_nodes(module.graph)
    with config.patch(activation_memory_budget=max(budget, _LEAST), cse=not own), _quiet():
        return min_cut_rematerialization_partition(module, inputs, **words)


def _keep_random_numbers(module: fx.GraphModule) -> None:
    """Marks what draws, but for what the user's checkpoints repeat, whose generators torch puts back."""
    for node in module.graph.nodes:
        if node.op == "call_function" and draws(node) and "recompute" not in node.meta:
            for kept in (node, *(user for user in node.users if user.target is operator.getitem)):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's remarks on the partition."""
    logger = logging.getLogger("torch._functorch.partitioners")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
