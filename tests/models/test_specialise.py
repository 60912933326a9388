"""Variants of a model for chosen sizes: which calls run them, that they share weights, and what is refused."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.options import parse_sizes
from mycc.runtime.errors import CompileError
from torch import nn

from ..helpers.command_server import CommandServer
from .support import ROOT, mycc_command

SOURCE = """
import torch
from torch import nn

class Told(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        y = self.linear(x)
        for axis, size in enumerate(x.shape[:2]):  # a number only where the size is a constant
            y = y + (1000.0 * 10**axis if isinstance(size, int) else 0.0)
        return y

model = Told().eval()
example_inputs = (torch.zeros(3, 5, 64),)
dynamic_shapes = {"x": {0: torch.export.Dim("batch", min=1, max=16), 1: torch.export.Dim("seq", min=1, max=32)}}
"""


def told(output: torch.Tensor) -> float:
    """Which sizes were constants: 1000 for the batch, 10000 for the sequence."""
    return float(torch.round(output.mean() / 1000) * 1000)


@pytest.fixture(scope="module")
def package(server: CommandServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specialise")
    (folder / "told.py").write_text(SOURCE)
    out = folder / "told.pkg"
    # the constant in the model makes variants differ, which is how the test tells them apart
    args = ("compile", "told.py", "--out", out, "--no-verify", "--specialize", "batch=1,8", "seq=16")
    done = server.mycc(*args, cwd=folder)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize(
    ("batch", "seq", "constants"), [(1, 16, 11000), (8, 16, 11000), (3, 16, 0), (1, 15, 0), (16, 32, 0)]
)
def test_calls_run_the_variant_of_their_sizes(package: Path, batch: int, seq: int, constants: int) -> None:
    loaded = mycc.load(package)
    output = loaded(torch.zeros(batch, seq, 64))
    assert output.shape == (batch, seq, 64)
    assert told(output) == constants
    sizes = loaded.sizes([(batch, seq, 64)])
    assert (loaded.variant(loaded, sizes) is loaded) == (constants == 0)


def test_variants_share_the_weights_and_are_no_entry_points(package: Path) -> None:
    loaded = mycc.load(package)
    assert list(loaded.entries) == ["forward"]
    assert loaded.entry("forward_batch1_seq16").signature.symbols == ()
    assert len(loaded.manifest["entry_points"]) == 3
    facts = mycc_command("inspect", package, "--json")
    assert '"tensors": 2' in facts.stdout


def test_one_size_of_two(tmp_path: Path) -> None:
    model = nn.Linear(64, 8).eval()
    dims = {"input": {0: torch.export.Dim("batch", min=1, max=16), 1: torch.export.Dim("seq", min=1, max=32)}}
    out = mycc.compile(
        model, torch.randn(2, 5, 64), out=tmp_path / "m.pkg", dynamic_shapes=dims, specialize={"batch": (1, 4)}
    )
    loaded = mycc.load(out)
    for batch, seq in ((4, 7), (1, 32), (2, 1)):
        x = torch.randn(batch, seq, 64)
        torch.testing.assert_close(loaded(x), model(x).detach())
    assert [row.get("fixed") for row in loaded.manifest["entry_points"]] == [None, {"batch": 1}, {"batch": 4}]
    with pytest.raises(mycc.InputError, match=r"dimension 0 \(batch\) is 17"):
        loaded(torch.randn(17, 3, 64))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("seq=1",), "cannot specialise 'seq': no input has a dynamic size of that name"),
        (("batch=4097",), "cannot specialise batch=4097: its range is 1..1024"),
        (("batch",), "cannot read 'batch'"),
        (("batch=" + ",".join(map(str, range(1, 80))),), "79 variants of 'forward' are too many"),
    ],
)
def test_refusals(server: CommandServer, words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = server.mycc("compile", ROOT / "examples" / "mlp.py", "--out", tmp_path / "m.pkg", "--specialize", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "m.pkg").exists()


def test_sizes_are_read() -> None:
    assert parse_sizes("batch=1,8 seq=128") == {"batch": (1, 8), "seq": (128,)}
    assert parse_sizes(["batch=8", "batch=1,8"]) == {"batch": (8, 1)}
    assert parse_sizes({"batch": 4}) == {"batch": (4,)}
    with pytest.raises(CompileError, match="sizes are whole numbers"):
        parse_sizes({"batch": (1.5,)})
