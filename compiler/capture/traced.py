"""A function of tensors as the graph that stands for an operator of the capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from ..model.fake import recording_fake


def traced(node: fx.Node, body: Callable[..., Any], values: Sequence[Any], composite: bool = False) -> fx.GraphModule:
    """The operators that `body` calls on these values, fake tensors and sizes; each comes from the line of `node`.

    composite: operators that torch makes of others, as matmul, stay whole."""
    fakes = [v for v in values if isinstance(v, torch._subclasses.FakeTensor)]
    mode = fakes[0].fake_mode if fakes else None
    with recording_fake(mode):
        whole = make_fx(body, tracing_mode="real", pre_dispatch=composite)(*values)
    for inner in whole.graph.nodes:
        inner.meta = {**node.meta, "val": inner.meta.get("val")}
    return whole
