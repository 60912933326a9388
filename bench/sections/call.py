"""What a call costs beside its work: a model of one small layer, from Python and from C."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from .common import ROOT, WORKERS, Figure, Settings, at_most, build_c, worker

PYTHON_US, C_US = 10.0, 2.0


def run(settings: Settings) -> Iterator[Figure]:
    package = _package(settings)
    facts = worker("call_small", package)
    for kind, value in facts.items():
        yield at_most("call", f"from Python, {kind}", 1e6 * value, PYTHON_US, "us")
    library = _library(settings, package)
    program = build_c(
        WORKERS / "call_small.c", settings.folder / "call_small",
        f"-I{ROOT / 'runtime' / 'include'}", str(library), f"-Wl,-rpath,{library.parent}",
    )  # fmt: skip
    done = subprocess.run([program, package], check=True, capture_output=True, text=True)
    yield at_most("call", "from C", float(done.stdout), C_US, "us")


def _library(settings: Settings, package: Path) -> Path:
    """The libmycc.so that the package carries."""
    from mycc.runtime.archive import Archive

    archive, path = Archive(package), settings.folder / "libmycc.so"
    path.write_bytes(archive.read(archive.manifest["targets"][0]["loader"]))
    return path


def _package(settings: Settings) -> Path:
    """x f32[1, 8] -> f32[1, 8], one layer."""
    path = settings.folder / "small.pkg"
    if not path.exists():
        import mycc
        import torch

        torch.manual_seed(0)
        layer = torch.nn.Linear(8, 8).eval()
        mycc.compile(layer, (torch.ones(1, 8),), out=path, cache_dir=settings.folder / "cache")
    return path
