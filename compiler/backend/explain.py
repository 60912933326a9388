"""What torch.compile makes of a function with backend="mycc": graphs, breaks, guards, kernels, and what falls back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from torch import fx

from ...runtime.text import counted
from ..model.source_lines import pick_user_line
from .backend import backend
from .graph_compiler import GraphCompiler
from .parts import operators_of

__all__ = ["Break", "CompilationReport", "GraphReport", "explain_compilation"]


@dataclass(frozen=True)
class GraphReport:
    """One graph: "inference", "forward" or "backward", its operators, the kernels of each compiled part in order, and
    what eager torch runs, with the reasons and lines."""

    kind: str
    operators: int
    parts: tuple[tuple[str, ...], ...]
    fallbacks: tuple[str, ...]

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part)


@dataclass(frozen=True)
class Break:
    """Where TorchDynamo ends a graph before the function ends: why, and the user's line."""

    reason: str
    where: str


@dataclass(frozen=True)
class CompilationReport:
    """Graphs in the order in which they were compiled, breaks between them, and the guards that a call has to meet."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[Break, ...]
    guards: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{counted(len(self.graphs), 'graph')}, {counted(len(self.breaks), 'break')}"]
        for i, graph in enumerate(self.graphs):
            kernels = counted(len(graph.kernels), "kernel")
            lines.append(f"graph {i}  {graph.kind}: {counted(graph.operators, 'operator')}, {kernels}")
            for number, part in enumerate(graph.parts):
                name = f"part {number}: " if len(graph.parts) > 1 else ""
                lines.append(f"  {name}{', '.join(part)}")
            lines += [f"  eager: {fallback}" for fallback in graph.fallbacks]
        lines += [f"break  {found.where}  {found.reason}" for found in self.breaks]
        lines.append(f"guards ({len(self.guards)})")
        lines += [f"  {guard}" for guard in self.guards]
        return "\n".join(lines)


def explain_compilation(
    function: Callable[..., Any],
    *args: Any,
    mode: str | None = None,
    options: Any = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> CompilationReport:
    """Compiles a function as torch.compile(function, backend="mycc") does, calls it once, and says what became of it.
    Backward graphs are compiled too, where the call needs gradients.

    Args:
        function: an nn.Module or a function, or what torch.compile made of it.
        args, kwargs: of the call. It runs, and changes what the function changes.
        mode, options, dynamic: of torch.compile.

    Raises:
        CompileError: an option or mode that is wrong.
    """
    import torch._dynamo
    import torch._functorch.config

    graphs: list[GraphReport] = []
    breaks: list[Break] = []
    guards: dict[str, None] = {}

    def compile_traced(module: fx.GraphModule, example_inputs: Sequence[Any], **words: Any) -> Callable[..., Any]:
        reason = getattr(module, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break:
            breaks.append(Break(str(reason.reason).strip().splitlines()[0], pick_user_line(reason.user_stack)))
        return backend(module, example_inputs, mode=mode, options=options, report=partial(_note, graphs))

    def note_guards(found: Iterable[Any]) -> None:
        guards.update((text, None) for guard in found for text in _texts(guard))

    original: Any = getattr(function, "_orig_mod", None) or getattr(function, "_torchdynamo_orig_callable", function)
    torch._dynamo.reset()
    try:
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
            compiled = torch._dynamo.optimize(compile_traced, guard_export_fn=note_guards, dynamic=dynamic)(original)
            compiled(*args, **kwargs)
    finally:
        torch._dynamo.reset()
    return CompilationReport(tuple(graphs), tuple(breaks), tuple(guards))


def _note(graphs: list[GraphReport], kind: str, module: fx.GraphModule, compiler: GraphCompiler) -> None:
    parts = tuple(tuple(native.kernels(0)) for native in compiler.natives)
    fallbacks = tuple(dict.fromkeys(str(fallback) for fallback in compiler.fallbacks))
    graphs.append(GraphReport(kind, len(operators_of(module)), parts, fallbacks))


def _texts(guard: Any) -> Iterable[str]:
    """A guard's conditions as Python would write them."""
    return guard.code_list or ()
