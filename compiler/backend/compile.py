"""One graph, compiled in memory: a package whose weights are its inputs, kept in the cache on disk by its graph."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ...runtime.native import open_library
from ..build.cache import Cache, encode_key
from ..build.toolchain import find_toolchain
from ..build.workspace import workspace
from ..model.graph import ModelGraph
from ..model.operators.kept import CUSTOM
from ..options import CompileOptions

__all__ = ["load_graph"]

_SOURCES = ("compiler", "kernels", "runtime", "templates")
_NAME = "graph"


def load_graph(graph: ModelGraph, options: CompileOptions, cached: bool = True) -> Any:
    """The loaded package of a graph: what open_library() loads, whose entry point 0 runs on the graph's inputs.

    cached: look for it in the cache on disk, and keep it there.

    Raises:
        CompileError: the graph cannot be compiled.
    """
    store = Cache(options.cache_dir) if cached and not _has_own_operators(graph) else None
    key = _key(graph, options) if store is not None else b""
    data = store.get(key) if store is not None else None
    if data is None:
        data = _package(graph, options)
        if store is not None:
            store.put(key, data)
    launch = "graph" if options.mode == "reduce-overhead" and options.families == ("cuda",) else None
    return open_library().load_memory(data, options.threads or 0, False, None, _device(options), launch, False)


def _device(options: CompileOptions) -> str:
    return options.families[0]


def _package(graph: ModelGraph, options: CompileOptions) -> bytes:
    """The bytes of a graph's package."""
    from ..pipeline import run_captured
    from ..request import CompileRequest

    if options.tuning:
        graph = replace(
            graph, examples=tuple(_example(node) for node in graph.module.graph.find_nodes(op="placeholder"))
        )
    folder = Cache(options.cache_dir).folder
    with workspace(folder) as place:
        out = Path(place) / f"{_NAME}.pkg"
        run_captured([graph], CompileRequest((), options, out, _NAME), ())
        return out.read_bytes()


def _example(node: torch.fx.Node) -> torch.Tensor:
    """Values to measure with, of the sizes of the trace."""
    val = node.meta["val"]
    shape = [s if isinstance(s, int) else int(s.node.hint or 2) for s in val.shape]
    if val.dtype.is_floating_point or val.dtype.is_complex:
        return torch.randn(shape, dtype=val.dtype)
    return torch.zeros(shape, dtype=val.dtype)


# -- what a compiled graph is found by --------------------------------------------------------------------------------


def _key(graph: ModelGraph, options: CompileOptions) -> bytes:
    """All that the package is made from."""
    toolchain = find_toolchain(options.targets[0].arch, Cache(options.cache_dir))
    parts = [
        ("what", "graph 1"),
        ("mycc", _installed()),
        ("torch", torch.__version__),
        ("python", platform.python_version()),
        ("compiler", toolchain.identity),
        ("targets", " ".join(target.name for target in options.targets)),
        ("options", options.fingerprint()),
        ("threads", str(options.threads)),
        ("graph", graph.format()),
        ("sizes", repr([(s.name, s.min, s.max, s.input, s.dim, s.scale, s.offset) for s in graph.symbols])),
    ]
    parts += [(f"constant {name}", _content(tensor)) for name, tensor in sorted(graph.constants.items())]
    return encode_key(parts)


def _content(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1)
    data = raw.view(torch.uint8).numpy().tobytes() if raw.numel() else b""
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(data).hexdigest()}"


def _has_own_operators(graph: ModelGraph) -> bool:
    """Whether an operator's meaning lies outside of mycc and torch: a registered lowering, a Triton kernel."""
    targets = {str(n.target) for n in graph.module.graph.nodes if n.op == "call_function"}
    return bool(targets & CUSTOM) or any(target.startswith("mycc.triton_kernel") for target in targets)


@cache
def _installed() -> str:
    """This mycc: the names, sizes and times of the files that code is made by."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for line in sorted(_files(root / folder)):
            digest.update(line.encode())
    return digest.hexdigest()


def _files(folder: Path) -> Iterable[str]:
    """A line for each source below a folder."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _files(Path(entry.path))
        else:
            status = entry.stat()
            yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"
