"""What AOTInductor and ONNX Runtime do with a model that mycc refuses.

A peer takes (model, example inputs, dynamic shapes, folder) and gives what is called with tensors; it raises what it
says of a model that it does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Package = Callable[..., Any]
Peer = Callable[[torch.nn.Module, tuple[torch.Tensor, ...], Any, str], Package]


def aot_inductor(model: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any, folder: str) -> Package:
    """torch.export and AOTInductor."""
    program = torch.export.export(model, example, dynamic_shapes=shapes, strict=False)
    path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
    return torch._inductor.aoti_load_package(path)  # type: ignore[no-any-return]


def onnx(model: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any, folder: str) -> Package:
    """torch.onnx.export by torch.export, and ONNX Runtime."""
    path = f"{folder}/model.onnx"
    torch.onnx.export(model, example, path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    return _session(path)


def onnx_by_trace(model: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any, folder: str) -> Package:
    """torch.onnx.export by a trace (torch.jit.trace), and ONNX Runtime."""
    path = f"{folder}/model.onnx"
    names = [f"x{i}" for i in range(len(example))]
    dims = shapes[0] if shapes else [{}] * len(example)
    axes = {n: {d: f"{n}_{d}" for d in dim} for n, dim in zip(names, dims, strict=True) if dim}
    torch.onnx.export(model, example, path, dynamo=False, input_names=names, dynamic_axes=axes)
    return _session(path)


def _session(path: str) -> Package:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def call(*given: torch.Tensor) -> Sequence[torch.Tensor]:
        found = session.run(None, {n: t.numpy() for n, t in zip(names, given, strict=True)})
        return [torch.from_numpy(y) for y in found]

    return call


#: by the name that the page has for each
PEERS: dict[str, Peer] = {"AOTInductor": aot_inductor, "ONNX": onnx, "ONNX by trace": onnx_by_trace}
