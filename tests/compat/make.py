"""Makes the packages of this release that later releases have to load: run once for a release, by a person.

    python -m tests.compat.make            # from the checkout; writes tests/compat/packages-VERSION.tar.xz

The archive holds small packages and `expected.npz`: for each its inputs and what it computed. They are for x86-64-v2,
which every x86-64 CPU of the project runs, and carry no sources.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import torch
from torch import nn

HERE = Path(__file__).parent
OPTIONS: dict[str, Any] = {"target": "cpu:x86-64-v2", "options": {"codegen.sources": False}}


class Small(nn.Module):
    """A convolution, a norm, attention's parts, a cache that calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        h = self.norm(torch.nn.functional.gelu(self.conv(x)).transpose(1, 2))
        weights = torch.softmax(h @ h.transpose(1, 2), dim=-1)
        return {"scores": self.out(weights @ h).sum(1), "best": h.argmax(-1), "calls": self.calls.clone()}


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))


def make(folder: Path) -> dict[str, Any]:
    """Compiles the packages into a folder; returns their inputs and results by "package/name"."""
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=16)
    found: dict[str, Any] = {}

    x = torch.randn(3, 3, 12)
    mycc.compile(Small().eval(), (x,), out=folder / "float32.pkg", dynamic_shapes={"x": {0: batch}}, **OPTIONS)
    m = mycc.load(folder / "float32.pkg", threads=1)
    found["float32/x"] = x.numpy()
    found |= {f"float32/{name}": np.asarray(value) for name, value in m(x.numpy()).items()}

    y = torch.randn(4, 64)
    mycc.compile(layers().eval(), (y,), out=folder / "quantised.pkg", quantize="int4", **OPTIONS)
    found |= {"quantised/y": y.numpy(), "quantised/output": mycc.load(folder / "quantised.pkg", threads=1)(y.numpy())}

    model, labels = layers(), torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mycc.compile_training(
        model, (y,), targets=(labels,), loss=nn.CrossEntropyLoss(), optimizer=optimizer,
        out=folder / "training.pkg", **OPTIONS,
    )  # fmt: skip
    t = mycc.load(folder / "training.pkg", threads=1)
    found["training/losses"] = np.array([float(t.step(y.numpy(), labels.numpy())) for _ in range(3)])
    found |= {f"training/state/{name}": value for name, value in t.state_dict().items()}

    from tests.generation.folders import make_network

    mycc.compile_generation(
        make_network("llama", hidden_size=32, num_hidden_layers=1), out=folder / "text.pkg", max_length=32, **OPTIONS
    )
    text = mycc.load(folder / "text.pkg", threads=1)
    found["text/tokens"] = np.array(
        list(text.generate_tokens([5, 9, 2], max_new_tokens=12, temperature=0, ignore_eos=True))
    )
    return found


def main() -> None:
    path = HERE / f"packages-{mycc.__version__}.tar.xz"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        buffer = io.BytesIO()
        np.savez(buffer, **make(folder))
        (folder / "expected.npz").write_bytes(buffer.getvalue())
        with tarfile.open(path, "w:xz", preset=9) as archive:
            for file in sorted(folder.iterdir()):
                archive.add(file, file.name, filter=_anonymous)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
