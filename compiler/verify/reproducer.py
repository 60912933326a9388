"""A small model of its own that shows a wrong kernel: the part of the graph that the kernel computes, on the values
that it is given there.

    repro.py      a source file for `mycc compile`, `mycc check` and `mycc verify`
    repro.npz     its inputs and constants
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import fx

from ...runtime.errors import CompileError
from .bisect import Finding

__all__ = ["write_reproducer"]

_TEMPLATE = '''\
"""{title}

    mycc compile repro.py --out repro.pkg       compares it with float64

torch {torch}
"""

import operator  # noqa: F401
from pathlib import Path

import numpy as np
import torch

DATA = np.load(Path(__file__).with_suffix(".npz"))


def tensor(name: str, dtype: torch.dtype) -> torch.Tensor:
    """Kept as bytes, as numpy does not have all dtypes."""
    return torch.from_numpy(DATA[name + ".bytes"]).view(dtype).reshape(tuple(DATA[name + ".shape"]))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
{constants}

    def forward(self, {inputs}):
{body}


model = Model()
example_inputs = ({examples},)
'''


def write_reproducer(finding: Finding, folder: Path) -> Path:
    """Writes repro.py and repro.npz into a folder, which is made; returns the path of repro.py.

    Raises:
        CompileError: the folder cannot be written.
    """
    assert finding.graph is not None
    assert finding.values is not None
    nodes, inputs, constants = _slice(finding)
    data: dict[str, np.ndarray] = {}
    for node in (*inputs, *constants):
        tensor = finding.values[node.name].detach().contiguous()
        flat = tensor.reshape(-1)
        data[f"{node.name}.bytes"] = (flat.view(torch.uint8) if flat.numel() else flat.to(torch.uint8)).numpy()
        data[f"{node.name}.shape"] = np.array(tensor.shape, np.int64)
    text = _TEMPLATE.format(
        title=f"Kernel '{finding.name}': '{finding.node}' has error {finding.error:.1e}, eager {finding.eager:.1e}.",
        torch=torch.__version__,
        constants="\n".join(f'        self.register_buffer("{n.name}", {_tensor(n, finding)})' for n in constants)
        or "        pass",
        inputs=", ".join(n.name for n in inputs),
        body="\n".join(f"        {line}" for line in _body(finding, nodes)),
        examples=", ".join(_tensor(n, finding) for n in inputs),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "repro.npz", **data)  # type: ignore[arg-type]
        (folder / "repro.py").write_text(text, encoding="utf-8")
    except OSError as error:
        raise CompileError(f"cannot write the reproducer to '{folder}': {error.strerror}") from None
    return folder / "repro.py"


def _tensor(node: fx.Node, finding: Finding) -> str:
    assert finding.values is not None
    return f'tensor("{node.name}", {finding.values[node.name].dtype})'


def _slice(finding: Finding) -> tuple[list[fx.Node], list[fx.Node], list[fx.Node]]:
    """Nodes between what the kernel reads and the wrong value, in order; their inputs; their constants."""
    assert finding.graph is not None
    assert finding.values is not None
    by_name = {node.name: node for node in finding.graph.module.graph.nodes}
    stop = {by_name[name] for name in finding.sources} - {by_name[finding.node]}
    needed: set[fx.Node] = set()
    waiting = [by_name[finding.node]]
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        if node not in stop and node.op == "call_function":
            waiting += node.all_input_nodes
    order = [node for node in finding.graph.module.graph.nodes if node in needed]
    computed = [n for n in order if n.op == "call_function" and n not in stop]
    constants = [n for n in order if n.op == "get_attr"]
    return computed, [n for n in order if n not in computed and n not in constants], constants


def _body(finding: Finding, nodes: list[fx.Node]) -> list[str]:
    """Python statements for the nodes."""

    def text(value: object) -> str:
        if isinstance(value, fx.Node):
            return f"self.{value.name}" if value.op == "get_attr" else value.name
        if isinstance(value, (list, tuple)):
            inside = ", ".join(map(text, value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return f'float("{value}")'
        return repr(value)

    lines = []
    for node in nodes:
        arguments = [text(a) for a in node.args] + [f"{k}={text(v)}" for k, v in node.kwargs.items()]
        name = str(node.target)
        call = f"torch.ops.{name}({', '.join(arguments)})"
        if not isinstance(node.target, torch._ops.OpOverload):
            call = f"operator.{getattr(node.target, '__name__', name)}({', '.join(arguments)})"
        lines.append(f"{node.name} = {call}")
    return [*lines, f"return {finding.node}"]
