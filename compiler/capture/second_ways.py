"""torch's other ways to capture a model, for those that its first one refuses.

strict=True                        the bytecode is traced: numpy, int() of tensors, x.data
dynamo_graph_capture_for_export    the same without export's own rules for what lies outside of the graph
draft_export                       what is asked of computed sizes is answered for the example, and asserted in calls
make_fx                            derivatives that the model takes itself are operators by then
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Literal

import torch
from torch._logging.structured import INTERN_TABLE
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad
from torch.export import ExportedProgram
from torch.export._draft_export import FailureType
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from ..model.source_lines import Frame
from .failures import place, quiet_export
from .trial import called

__all__ = ["Captured", "agree", "levels_closed", "other_numbers", "run", "second_ways"]


@dataclass(frozen=True)
class Captured:
    """What the first way that works gives, with warnings; without a program the reason of each."""

    program: ExportedProgram | None
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    not_for_one: Mapping[str, str] = field(default_factory=dict)  # sizes that are 2 at least -> the line that asks


class _Refused(Exception):
    pass


def second_ways(model: torch.nn.Module, examples: Sequence[torch.Tensor], shapes: Any) -> Captured:
    """Tries each way on a module that takes the tensors one by one and keeps nothing."""
    reasons = []
    for name, way in _WAYS.items():
        try:
            with torch.no_grad(), quiet_export(), levels_closed():
                program, notes = way(model, tuple(examples), shapes)
                _check(program, model, examples)
            return Captured(program, notes)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reasons.append(f"{name}: {(lines or [type(error).__name__])[0][:160]}")
    return Captured(None, (), tuple(reasons))


@contextmanager
def levels_closed() -> Iterator[None]:
    """A trace that fails inside of torch.func's transforms leaves their levels open, at which all tensors would be."""
    depth, dual = torch._C._functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level
    try:
        yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if dual < 0:
            with suppress(RuntimeError):  # when it is closed
                torch._C._exit_dual_level(level=0)
        forward_ad._current_level = dual


def _check(program: ExportedProgram, model: torch.nn.Module, examples: Sequence[torch.Tensor]) -> None:
    """Refuses a program that holds tensors of its trace, or whose results are not the model's on other numbers too."""
    if any(isinstance(t, FakeTensor) for t in (*program.constants.values(), *program.state_dict.values())):
        raise _Refused("it takes a tensor of the trace for a constant")
    module = program.module(check_guards=False)
    if not agree(run(model, examples), run(module, examples)):
        raise _Refused("its results are not the model's")
    for inputs in (other_numbers(examples), *_other_integers(examples)):
        if (wanted := _tried(model, inputs)) is None:  # numbers that the model does not take
            continue
        if (found := _tried(module, inputs)) is not None and not agree(wanted, found):  # None: the call asserts
            raise _Refused("its results are not the model's")


def _tried(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """None: the call fails. What it says then is no fault of the model, whose numbers were others."""
    try:
        with redirect_stderr(StringIO()):
            return run(module, inputs)
    except Exception:
        return None


def other_numbers(examples: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Inputs of other values; integers, which may be indices, are as they were."""
    return [t * 0.75 + 0.1 if t.is_floating_point() or t.is_complex() else t for t in examples]


def _other_integers(examples: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Inputs whose integers, which may be counts, are one more and one less."""
    if not any(_is_integer(t) for t in examples):
        return []
    return [[t + step if _is_integer(t) else t for t in examples] for step in (1, -1)]


def _is_integer(t: torch.Tensor) -> bool:
    return not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool)


def agree(wanted: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> bool:
    """Whether these are the same results, up to roundings."""
    return len(wanted) == len(found) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True)
        for a, b in zip(wanted, found, strict=True)
    )


def run(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that a call gives that leaves inputs and buffers as they were."""
    kept = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            results = pytree.tree_leaves(called(module, inputs))
            return [result.detach() for result in results if isinstance(result, torch.Tensor)]
    finally:
        for buffer, value in kept:
            buffer.copy_(value)


_Way = Callable[[torch.nn.Module, tuple[torch.Tensor, ...], Any], tuple[ExportedProgram, tuple[str, ...]]]


def _strict(model: torch.nn.Module, examples: tuple[torch.Tensor, ...], shapes: Any) -> Any:
    return torch.export.export(model, examples, dynamic_shapes=shapes, strict=True), ()


def _dynamo(model: torch.nn.Module, examples: tuple[torch.Tensor, ...], shapes: Any) -> Any:
    from torch._dynamo.functional_export import dynamo_graph_capture_for_export

    if shapes is not None:
        raise _Refused("it takes no dynamic sizes")
    graph = dynamo_graph_capture_for_export(model)(*examples)
    if mode := graph.meta.get("fake_mode"):
        _refuse_guards(mode.shape_env)
    return torch.export.export(graph, examples, strict=False), ()


def _refuse_guards(env: Any) -> None:
    """Numbers of tensors (n.item()) are symbols with a value here; what is asked of them would stand beside the graph,
    which does not hold it. Sizes are fixed, so that nothing else is asked."""
    if env is not None and env.guards:
        raise _Refused(f"it would take for all values that {env.guards[0].expr}, as of the example inputs")


def _draft(model: torch.nn.Module, examples: tuple[torch.Tensor, ...], shapes: Any) -> Any:
    program = torch.export.draft_export(model, examples, dynamic_shapes=shapes)
    notes = []
    for failure in program._report.failures:  # type: ignore[attr-defined]
        where = _place(failure.data)
        if failure.failure_type != FailureType.DATA_DEPENDENT_ERROR:
            raise _Refused(f"{str(failure.failure_type).lower().replace('_', ' ')}{where}")
        condition = failure.data["expr"]
        if not _is_of_sizes(program, condition):
            raise _Refused(f"it would do for all values what those of the example choose{where}")
        notes.append(f"calls assert that {condition} is {failure.data['result']}, as of the example inputs{where}")
    return program, tuple(notes)


def _derivatives(model: torch.nn.Module, examples: tuple[torch.Tensor, ...], shapes: Any) -> Any:
    """Derivatives that forward takes itself (torch.autograd.grad, torch.func), as the operators that compute them."""

    def run(*tensors: torch.Tensor) -> Any:
        with torch.enable_grad():
            return pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, model(*tensors))

    mode: Literal["symbolic", "fake"] = "symbolic" if shapes is not None else "fake"
    graph = make_fx(run, tracing_mode=mode, _allow_non_fake_inputs=True)(*examples)
    return torch.export.export(graph, examples, dynamic_shapes=_of_graph(graph, shapes), strict=False), ()


def _of_graph(graph: torch.fx.GraphModule, shapes: Any) -> Any:
    """The dynamic sizes by position: a traced graph has no names of arguments."""
    return tuple(pytree.tree_leaves(shapes, is_leaf=_is_dims)) if shapes is not None else None


def _is_dims(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(key, int) for key in value))


def _is_of_sizes(program: ExportedProgram, condition: str) -> bool:
    """Whether a condition is of numbers of elements that the run finds, and of no other values of tensors."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    env = next((value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor)), None)
    sizes = {str(symbol) for symbol in env.size_like} if env is not None else set()
    found = set(re.findall(r"\bu\d+\b", condition))
    return bool(found) and found <= sizes


def _place(data: Mapping[str, Any]) -> str:
    stack = data.get("user_stack") or ()
    if not stack:
        return ""
    files = {number: file for file, number in INTERN_TABLE.items()}
    file, line = files.get(stack[-1]["filename"], ""), int(stack[-1]["line"])
    return f" ({place(Frame(file, line, '', linecache.getline(file, line).strip()))})"


_WAYS: dict[str, _Way] = {
    "strict=True": _strict,
    "dynamo_graph_capture_for_export": _dynamo,
    "draft_export": _draft,
    "make_fx": _derivatives,
}
