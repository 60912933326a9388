"""What the model's own code asks about sizes that may be 1.

torch.export traces dynamic sizes as at least 2, and answers such questions without a word:

    if x.shape[0] == 1:        never, says the trace; the graph holds the other branch alone

Each question whose answer is another one where a size is 1 is noted. Then the model itself and the program run on
examples of that size, and the size is left out of the range where their results differ.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.sym_node import SymNode

from ..model.sizes import resize
from ..model.source_lines import Frame, is_torch_file
from . import casts
from .failures import place, quiet_export
from .second_ways import agree, run

__all__ = ["NotForOne", "is_machinery", "not_for_one", "noting_questions"]

#: a symbol of torch's that has to be 2 at least -> the line that asks; "" where it is not known
NotForOne = Mapping[str, str]
Questions = dict[str, str]
_LAYERS = "/torch/nn/"  # its code asks as a model's does


@contextmanager
def noting_questions(questions: Questions) -> Iterator[None]:
    """Collects the symbols whose size of 1 another branch of the model is for, each with the first line that asks."""
    answer = SymNode.guard_bool

    def noting(node: SymNode, file: str, line: int) -> bool:
        result = answer(node, file, line)
        asked = [name for name in _other_for_one(node, result) if name not in questions]
        frame = _asks() if asked else None
        if frame is not None:
            questions.update(dict.fromkeys(asked, place(frame)))
        return result

    with mock.patch.object(SymNode, "guard_bool", noting):
        yield


def _other_for_one(node: SymNode, result: bool) -> list[str]:
    """The sizes in a condition of which one has to be 1, or all, for another answer."""
    symbols = [s for s in node.expr.free_symbols if str(s).startswith("s")]
    values = _hints(node)
    if not symbols or len(values) < len(node.expr.free_symbols):
        return []
    alone = [s for s in symbols if _answer(node.expr, {**values, s: sympy.Integer(1)}) not in (result, None)]
    if not alone and _answer(node.expr, dict.fromkeys(values, sympy.Integer(1))) not in (result, None):
        alone = symbols
    return [str(s) for s in alone]


def _hints(node: SymNode) -> dict[sympy.Symbol, sympy.Integer]:
    """The examples' sizes of what a formula is made of."""
    env = node.shape_env
    known = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
    return {s: sympy.Integer(int(known[s])) for s in node.expr.free_symbols if s in known}


def _answer(condition: Any, values: Mapping[Any, Any]) -> bool | None:
    """None: the condition says nothing at these sizes, as one that divides by a size of 0."""
    try:
        found = condition.xreplace(dict(values))
    except ZeroDivisionError:
        return None
    return bool(found) if found in (sympy.true, sympy.false) else None


def _asks() -> Frame | None:
    """The line of the model that asks, if it is no operator of torch."""
    frame: Any = sys._getframe(2)
    while frame is not None and is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    file = code.co_filename
    if is_torch_file(file) and _LAYERS not in file and not file.startswith("<"):  # <stdin>: a model typed in
        return None
    return Frame(file, frame.f_lineno, code.co_name, linecache.getline(file, frame.f_lineno).strip())


def is_machinery(file: str) -> bool:
    """Files that stand between a comparison of sizes and torch's answer, and its record of it."""
    if "torch/fx/experimental/" in file or "/logging/" in file or file in (__file__, casts.__file__):
        return True
    return file.endswith(("torch/__init__.py", "torch/utils/_stats.py"))


def not_for_one(
    program: ExportedProgram, model: torch.nn.Module, examples: Sequence[torch.Tensor], questions: Mapping[str, str]
) -> NotForOne:
    """Those of the symbols for which the model does something else than the program where they are 1.

    Args:
        model: takes the tensors one by one and keeps nothing.
        questions: by symbol.
    """
    asked = {s: questions[str(s)] for s in program.range_constraints if str(s) in questions}
    if not asked:
        return {}
    with quiet_export():
        module = program.module(check_guards=False)
        wrong = {str(s): where for s, where in asked.items() if not _equal(program, module, model, examples, [s])}
        if not wrong and len(asked) > 1 and not _equal(program, module, model, examples, list(asked)):
            wrong = {str(s): where for s, where in asked.items()}
    return wrong


def _equal(
    program: ExportedProgram,
    module: torch.nn.Module,
    model: torch.nn.Module,
    examples: Sequence[torch.Tensor],
    ones: Sequence[sympy.Symbol],
) -> bool:
    """Whether both give the same where these sizes are 1; what the program refuses there itself is no matter."""
    shapes = _shapes(program, ones)
    if shapes is None or len(shapes) != len(examples):
        return True
    given = list(examples)
    for i, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            given[i] = resize(given[i], axis, size, f"input {i}")
    found: list[Any] = []
    for each in (model, module):
        try:
            found.append(run(each, given))
        except Exception:
            found.append(None)
    if found[1] is None:
        return True  # told where operators are tried with the smallest sizes
    return found[0] is not None and agree(*found)


def _shapes(program: ExportedProgram, ones: Sequence[sympy.Symbol]) -> list[list[int]] | None:
    """The sizes of the tensor inputs where these symbols are 1; None where no such input has none."""
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    inputs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    tensors = [value for spec in inputs if isinstance(value := values.get(spec.arg.name), torch.Tensor)]
    shapes: list[list[int]] = []
    for tensor in tensors:
        sizes: list[int] = []
        for size in tensor.shape:
            if isinstance(size, int):
                sizes.append(size)
                continue
            node = size.node
            hints = _hints(node)
            value = node.expr.xreplace({**hints, **dict.fromkeys(ones, sympy.Integer(1))})
            if not value.is_Integer or int(value) < 1:
                return None
            sizes.append(int(value))
        shapes.append(sizes)
    return shapes
