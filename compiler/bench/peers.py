"""The other ways to run a PyTorch model on the CPU: a table, and how each is built from the model.

A builder runs in the peer's own process, with the number of threads set. It takes what the peer's users would have: the
module and example inputs, and gives a function without arguments that runs the model and returns its result.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["PEERS", "Peer", "PeerJob", "find_peers", "missing_module"]

Run = Callable[[], Any]


@dataclass(frozen=True)
class PeerJob:
    """What a builder gets. `folder` is for files that peers of the same model and sizes may share."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    threads: int
    folder: Path

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors of the arguments, in order."""
        import torch

        leaves = torch.utils._pytree.tree_leaves((self.args, dict(self.kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def restorer(self) -> Run:
        """Sets the module's tensors and the arguments back to what they are now."""
        import torch

        owners = [table for m in self.model.modules() for table in (m._parameters, m._buffers, vars(m))]
        held = [(table, name, t) for table in owners for name, t in table.items() if isinstance(t, torch.Tensor)]
        kept = [(tensor, tensor.detach().clone()) for tensor in (*(t for _, _, t in held), *self.tensors)]

        def restore() -> None:
            for table, name, tensor in held:
                table[name] = tensor
            with torch.no_grad():
                for tensor, value in kept:
                    tensor.copy_(value)

        return restore


def _eager(job: PeerJob) -> Run:
    return lambda: job.model(*job.args, **job.kwargs)


def _compile(job: PeerJob) -> Run:
    import torch
    import torch._inductor.config

    torch._inductor.config.freezing = True
    compiled = torch.compile(job.model)
    return lambda: compiled(*job.args, **job.kwargs)


def _aoti(job: PeerJob, **options: Any) -> Run:
    import torch

    path = job.folder / f"{'aoti-max' if options else 'aoti'}-{job.threads}.pt2"
    if not path.exists():  # its loops are cut for a number of threads
        program = torch.export.export(job.model, job.args, dict(job.kwargs), strict=False)
        configs = {"freezing": True, **options}
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=configs)
    compiled = torch._inductor.aoti_load_package(str(path))
    return lambda: compiled(*job.args, **job.kwargs)


def _aoti_max(job: PeerJob) -> Run:
    return _aoti(job, max_autotune=True, max_autotune_gemm=True)


def _ort(job: PeerJob) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    session = onnxruntime.InferenceSession(_onnx(job), options, providers=["CPUExecutionProvider"])
    feed = dict(_named([port.name for port in session.get_inputs()], job))
    return lambda: session.run(None, feed)


def _openvino(job: PeerJob) -> Run:
    import openvino

    core = openvino.Core()
    hints = {"INFERENCE_NUM_THREADS": job.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    core.set_property("CPU", hints)
    compiled = core.compile_model(core.read_model(_onnx(job)), "CPU")
    request = compiled.create_infer_request()
    names = [port.get_any_name() for port in compiled.inputs]
    inputs = [array for _, array in _named(names, job)]
    count = len(compiled.outputs)

    def run() -> list[Any]:
        request.infer(inputs, share_inputs=True, share_outputs=True)
        return [request.get_output_tensor(i).data for i in range(count)]

    return run


def _onnx(job: PeerJob) -> str:
    """The model as an ONNX file, written once for all peers that read it."""
    import torch

    path = job.folder / "model.onnx"
    if not path.exists():
        part = job.folder / "part.onnx"
        torch.onnx.export(job.model, job.args, str(part), kwargs=dict(job.kwargs), dynamo=True, verbose=False,
                          external_data=False)  # fmt: skip
        part.rename(path)
    return str(path)


def _named(names: Sequence[str], job: PeerJob) -> list[tuple[str, Any]]:
    arrays = [tensor.detach().numpy() for tensor in job.tensors]
    if len(arrays) != len(names):
        raise ValueError(f"its ONNX file takes {len(names)} inputs, the model {len(arrays)}")
    return list(zip(names, arrays, strict=True))


@dataclass(frozen=True)
class Peer:
    """A way to run a model.

    Attributes:
        name: as `--against` names it.
        title: as its users know it.
        modules: what has to be installed.
        build: see above.
        shares_state: it runs on the model's own buffers and on the arguments themselves.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    build: Callable[[PeerJob], Run]
    shares_state: bool = False


_EXPORT = ("onnx", "onnxscript")  # torch.onnx.export
PEERS = {
    peer.name: peer
    for peer in (
        Peer("eager", "eager torch", ("torch",), _eager, shares_state=True),
        Peer("compile", "torch.compile", ("torch",), _compile, shares_state=True),
        Peer("aoti", "AOTInductor", ("torch",), _aoti),
        Peer("aoti-max", "AOTInductor, max autotune", ("torch",), _aoti_max),
        Peer("ort", "ONNX Runtime", ("onnxruntime", *_EXPORT), _ort),
        Peer("openvino", "OpenVINO", ("openvino", *_EXPORT), _openvino),
    )
}


def find_peers(names: Sequence[str]) -> tuple[Peer, ...]:
    """Peers by name, each once. Raises InputError for one that is unknown."""
    found: dict[str, Peer] = {}
    for name in names:
        if name not in PEERS:
            near = difflib.get_close_matches(name, PEERS, 1, 0.5)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise InputError(f"unknown peer '{name}'", hint=f"{hint}Peers: {', '.join(PEERS)}.")
        found[name] = PEERS[name]
    return tuple(found.values())


def missing_module(peer: Peer) -> str | None:
    """The first module that the peer needs and that is not installed."""
    return next((name for name in peer.modules if importlib.util.find_spec(name) is None), None)
