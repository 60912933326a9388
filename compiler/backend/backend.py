"""`torch.compile(model, backend="mycc")`: TorchDynamo captures, AOTAutograd splits, mycc compiles each graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from .compile import load_graph
from .graph import import_graph
from .runner import Runner, make_runner
from .settings import Settings, settings_of

__all__ = ["backend"]


def backend(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that TorchDynamo has captured; registered with torch under the name "mycc".

    Args:
        module: the graph, with parameters among its inputs.
        example_inputs: fake tensors, and numbers for dynamic sizes.
        mode: torch.compile's: "default", "reduce-overhead", "max-autotune".
        options: torch.compile's: see settings_of.

    Returns:
        A function that takes the graph's inputs and gives its outputs; gradients flow through it.

    Raises:
        CompileError: a mode or option that is wrong; with "strict", an operator that mycc does not take.
    """
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo import disable
    from torch._functorch.aot_autograd import aot_module_simplified

    settings = settings_of(mode, options)

    def compiler(graph: fx.GraphModule, _: Sequence[Any]) -> Runner:
        return compile_graph(graph, settings)

    def backward_compiler(graph: fx.GraphModule, inputs: Sequence[Any]) -> Runner:
        compiled = disable(compiler, reason="mycc compiles a backward graph")(graph, inputs)
        return disable(compiled, reason="a backward graph that mycc compiled")  # type: ignore[no-any-return]

    compiled = aot_module_simplified(
        module,
        example_inputs,
        fw_compiler=compiler,
        bw_compiler=backward_compiler,
        inference_compiler=compiler,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return disable(compiled, reason="a graph that mycc compiled")  # type: ignore[no-any-return]


def compile_graph(graph: fx.GraphModule, settings: Settings) -> Runner:
    """A graph of AOTAutograd as a function of its arguments."""
    with _disable_current_modes(), torch.no_grad():  # torch's tracing of the caller is none of ours
        return _compiled(graph, settings)


def _compiled(graph: fx.GraphModule, settings: Settings) -> Runner:
    imported = import_graph(graph)
    if imported.graph is None:
        return make_runner(None, imported.interface)
    native = load_graph(imported.graph, settings.on(imported.device), settings.cache)
    return make_runner(native, imported.interface)
