"""`torch.compile(model, backend="mycc")`: TorchDynamo captures, AOTAutograd splits, mycc compiles each graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from ..model.partition import partition
from .graph_compiler import GraphCompiler
from .runner import Runner
from .settings import settings_of

__all__ = ["Report", "backend"]

Report = Callable[[str, fx.GraphModule, GraphCompiler], None]


def backend(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    report: Report | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that TorchDynamo has captured; registered with torch under the name "mycc".

    Args:
        module: the graph, with parameters among its inputs.
        example_inputs: fake tensors, and numbers for dynamic sizes.
        mode: torch.compile's: "default", "reduce-overhead", "max-autotune".
        options: torch.compile's: see settings_of.
        report: told of each graph when it is compiled: "forward", "backward" or "inference", the graph, and its
            compiler.

    Returns:
        A function that takes the graph's inputs and gives its outputs; gradients flow through it.

    Raises:
        CompileError: a mode or option that is wrong; with "strict", an operator that mycc does not take.
    """
    from torch._dynamo import disable
    from torch._functorch.aot_autograd import aot_module_simplified

    settings = settings_of(mode, options)

    def compiler(gm: fx.GraphModule, kind: str) -> Runner:
        own = GraphCompiler(settings)
        # modes of the caller's, such as torch's own tracing and autocast, are none of the compiler's
        with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast():
            runner = own.compile(gm)
        if report is not None:
            report(kind, gm, own)
        return runner

    def forward_compiler(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Runner:
        return compiler(gm, "forward")

    def inference_compiler(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Runner:
        return compiler(gm, "inference")

    def backward_compiler(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Runner:
        compiled = disable(compiler, reason="mycc compiles a backward graph")(gm, "backward")
        return disable(compiled, reason="a backward graph that mycc compiled")

    compiled = aot_module_simplified(
        module,
        example_inputs,
        fw_compiler=forward_compiler,
        bw_compiler=backward_compiler,
        inference_compiler=inference_compiler,
        partition_fn=partial(partition, settings.memory_budget),
        keep_inference_input_mutations=True,
    )
    return disable(compiled, reason="a graph that mycc compiled")
