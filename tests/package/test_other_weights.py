"""`mycc weights`: a package with other weights is the package that a compile with them makes."""

from __future__ import annotations

import copy
from pathlib import Path

import mycc
import pytest
import torch
from mycc.cli import app
from mycc.compiler.capture.export import CaptureRequest, capture_request
from mycc.compiler.capture.state import share_state
from mycc.compiler.graph.passes import run_graph_passes
from mycc.compiler.lower import lower
from mycc.compiler.weights.collect import collect_weights
from mycc.compiler.weights.safetensors import layout, stream
from mycc.runtime.archive import Archive
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner


class Network(nn.Module):
    """What passes compute of constants: a folded batch norm, a transposed matrix, merged linears, a product of two
    parameters, a table that is not saved, a tied weight, a buffer that calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.matrix, self.gain = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.key.weight
        self.register_buffer("table", torch.arange(8.0) / 8, persistent=False)
        self.register_buffer("count", torch.zeros(1))
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        h = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        h = self.query(h) + torch.tanh(self.key(h))
        return (h @ self.matrix) * (self.gain * self.gain.cos() + self.table) + self.tied(h) + self.count


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    model = Network()
    nn.init.uniform_(model.norm.running_mean)
    nn.init.uniform_(model.norm.running_var, 0.5, 2.0)
    nn.init.uniform_(model.norm.weight, 0.5, 2.0)
    nn.init.uniform_(model.norm.bias)
    return model.eval()


X = torch.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("weights") / "network.pkg"
    mycc.compile(network(0), (X,), out=out, options={"build.flags": "-O0"})
    return out


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Of another network; the tied weight once, as files of safetensors have it."""
    state = network(1).state_dict()
    del state["tied.weight"]
    save_file(state, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def member(path: Path) -> bytes:
    archive = Archive(path)
    archive.check_members()
    archive.check_weights()
    return bytes(archive.read("weights.safetensors"))


def compiled_anew(model: nn.Module) -> bytes:
    """The weights' member of a compile."""
    (captured,) = share_state([capture_request(CaptureRequest(model, (X,), name="network"))])
    graph = run_graph_passes(captured)
    made = collect_weights([lower(graph)], (), [c for c in graph.in_place if c.initial is not None])
    return b"".join(stream(made.tensors, layout(made.tensors)))


def test_they_are_those_of_a_compile(package: Path, weights: Path, tmp_path: Path) -> None:
    before = package.read_bytes()
    new = tmp_path / "new.pkg"
    done = CliRunner().invoke(app, ["weights", str(package), str(weights), "--out", str(new)])
    assert done.exit_code == 0, done.output
    assert member(new) == compiled_anew(network(1))
    assert member(package) == compiled_anew(network(0))
    assert package.read_bytes() == before
    loaded = mycc.load(new)
    torch.testing.assert_close(torch.from_dlpack(loaded(X)), network(1)(X).detach(), rtol=1e-5, atol=1e-5)
    assert "certificate" not in loaded.manifest["check"]
    mycc.replace_weights(new, network(0).state_dict())  # in its place, and back
    assert member(new) == member(package)


def test_what_does_not_fit_is_named(package: Path, weights: Path, tmp_path: Path) -> None:
    state = network(1).state_dict()
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    wrong = {
        "the weights lack 'gain'": {n: v for n, v in state.items() if n != "gain"},
        "the model has no 'other'": state | {"other": torch.zeros(1)},
        r"'gain' has the shape \[4\], where the model has \[8\]": state | {"gain": torch.zeros(4)},
        "'gain' is of f64, where the package has f32": state | {"gain": torch.zeros(8, dtype=torch.float64)},
        "'tied.weight' is one tensor with 'key.weight', 'tied.weight'": state | {"tied.weight": torch.zeros(8, 8)},
        "'count' was zero": state | {"count": torch.ones(1)},
        "is no safetensors file": tmp_path / "no.safetensors",
        "cannot read": tmp_path / "none.safetensors",
    }
    before = package.read_bytes()
    for message, given in wrong.items():
        with pytest.raises(mycc.InputError, match=message):
            mycc.replace_weights(package, given)
    with pytest.raises(mycc.InputError, match=r"'norm.weight' and .* are one constant of the package: give both"):
        mycc.replace_weights(package, {"norm.weight": state["norm.weight"]}, partial=True)
    done = CliRunner().invoke(app, ["weights", str(package), str(tmp_path / "none.safetensors")])
    assert done.exit_code == 2
    with pytest.raises(mycc.CompileError, match="cannot write"):
        mycc.replace_weights(package, weights, tmp_path / "no folder" / "new.pkg")
    assert package.read_bytes() == before
    assert sorted(p.name for p in package.parent.iterdir()) == [package.name]


def test_a_part_of_them(package: Path, tmp_path: Path) -> None:
    other = network(1)
    part = {name: value for name, value in other.state_dict().items() if name.startswith(("query", "key", "gain"))}
    done = mycc.replace_weights(package, part, tmp_path / "new.pkg", partial=True)
    assert done.replaced == 4
    assert "matrix" in done.kept
    mixed = copy.deepcopy(network(0))
    mixed.load_state_dict(part, strict=False)
    assert member(tmp_path / "new.pkg") == compiled_anew(mixed)


class Scaled(nn.Module):
    """A number that the compiler puts into the code."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * self.gain + self.bias


def test_code_that_stands_on_values_takes_no_others(tmp_path: Path) -> None:
    out = tmp_path / "scaled.pkg"
    mycc.compile(Scaled(), (torch.randn(3, 8),), out=out, options={"build.flags": "-O0"}, verify=False)
    bias = torch.zeros(8)
    with pytest.raises(mycc.InputError, match="stands on the values that 'gain' had"):
        mycc.replace_weights(out, {"gain": torch.tensor(3.0), "bias": bias})
    assert mycc.replace_weights(out, {"gain": torch.tensor(2.0), "bias": bias}).replaced == 2
    y = mycc.load(out)(torch.ones(3, 8))
    torch.testing.assert_close(torch.from_dlpack(y), 2 * torch.ones(3, 8).sin())
