"""A package that trains, beside eager torch: losses, gradients, files, seeds, and what it refuses."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.runtime import _binding
from safetensors.torch import load_file
from torch import nn

BATCH = torch.export.Dim("batch", min=2, max=64)
SHAPES = {"x": {0: BATCH}, "target": {0: BATCH}}


class Classifier(nn.Module):
    """A tied weight, a norm with statistics, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.norm = nn.BatchNorm1d(16)
        self.tied = nn.Linear(16, 16)
        self.again = nn.Linear(16, 16)
        self.again.weight = self.tied.weight
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.gelu(self.norm(self.first(x)))
        return self.last(torch.tanh(self.again(torch.relu(self.tied(h)))))


def batches(count: int, seed: int = 0) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(seed)
    sizes = [16, 7, 2]
    found = []
    for i in range(count):
        n = sizes[i % len(sizes)]
        found.append((random.standard_normal((n, 12), dtype=np.float32), random.integers(0, 4, (n,))))
    return found


def below_the_last(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for name, parameter in model.named_parameters() if "last" not in name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    """A package with everything that a step may do, and the model that it starts from."""
    torch.manual_seed(0)
    model = Classifier()
    path = tmp_path_factory.mktemp("training") / "classifier.pkg"
    optimizer = torch.optim.AdamW(
        [{"params": [*model.last.parameters()], "lr": 1e-2}, {"params": below_the_last(model)}],
        lr=3e-3, betas=(0.9, 0.99), weight_decay=0.05,
    )  # fmt: skip
    mycc.compile_training(
        model, (torch.randn(8, 12),), targets=torch.randint(0, 4, (8,)), loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        optimizer=optimizer, out=path, dynamic_shapes=SHAPES, clip_norm=1.0, check_finite=True, accumulate=True,
        freeze=["first.bias"], options={"build.flags": "-O0"},
    )  # fmt: skip
    return path, model


def eager(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    twin = copy.deepcopy(model)
    twin.first.bias.requires_grad_(False)  # type: ignore[union-attr]
    groups = [
        {"params": [*twin.last.parameters()], "lr": 1e-2},  # type: ignore[union-attr]
        {"params": below_the_last(twin)},
    ]
    return twin, torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.99), weight_decay=0.05)


def eager_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any) -> float:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y), label_smoothing=0.1)
    loss.backward()
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)
    optimizer.step()
    return loss.item()


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(a.state[name], b.state[name]) for name in a.state)


def test_losses_are_eager_s(trained: tuple[Path, nn.Module]) -> None:
    path, model = trained
    t, (twin, optimizer) = mycc.load(path), eager(model)
    for x, y in batches(50):
        assert float(t.step(x, y)) == pytest.approx(eager_step(twin, optimizer, x, y), rel=1e-4)
    assert (t.steps, t.skipped_steps) == (50, 0)
    found = {name: torch.from_numpy(np.array(value)) for name, value in t.state_dict().items()}
    missing = twin.load_state_dict(found, strict=False)
    assert missing.missing_keys == ["first.bias"]
    assert not missing.unexpected_keys
    assert found["again.weight"].equal(found["tied.weight"])
    x, y = batches(1, seed=1)[0]
    _loss, output = t.evaluate(x, y)
    torch.testing.assert_close(
        torch.from_numpy(output), twin.eval()(torch.from_numpy(x)).detach(), rtol=1e-4, atol=1e-4
    )


def test_the_same_bits_resumed_and_at_any_number_of_threads(trained: tuple[Path, nn.Module], tmp_path: Path) -> None:
    path, _ = trained
    whole, first, later = mycc.load(path, threads=2), mycc.load(path, threads=1), mycc.load(path, threads=2)
    for x, y in batches(8):
        whole.step(x, y, lr=2e-3)
    for x, y in batches(8)[:5]:
        first.step(x, y, lr=[2e-3, 2e-3])
    first.save(tmp_path / "weights.safetensors")
    later.load(tmp_path / "weights.safetensors")
    for x, y in batches(8)[5:]:
        later.step(x, y, lr=2e-3)
    assert same(whole, later)
    assert whole.next_seed == later.next_seed


def test_trained_weights_go_into_an_inference_package_and_into_torch(
    trained: tuple[Path, nn.Module], tmp_path: Path
) -> None:
    path, model = trained
    t, file, package = mycc.load(path), tmp_path / "weights.safetensors", tmp_path / "model.pkg"
    mycc.compile(copy.deepcopy(model).eval(), (torch.randn(8, 12),), out=package, options={"build.flags": "-O0"})
    for x, y in batches(5):
        t.step(x, y)
    t.save(file)
    # first.bias was frozen, so the file lacks it, and the batch norm is folded into it
    with pytest.raises(mycc.InputError, match=r"'first\.bias' are one constant of the package: give both"):
        mycc.replace_weights(package, file, partial=True)
    done = mycc.replace_weights(package, {**load_file(file), "first.bias": model.first.bias})
    assert done.kept == ()
    x, y = torch.randn(8, 12), np.zeros(8, np.int64)
    twin = copy.deepcopy(model).eval()
    missing = twin.load_state_dict(load_file(file), strict=False).missing_keys
    assert missing == ["first.bias", "again.weight"]  # the second is tied.weight, which the file has
    found = torch.from_dlpack(mycc.load(package)(x))
    torch.testing.assert_close(found, torch.from_numpy(t.evaluate(x.numpy(), y)[1]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, twin(x).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(mycc.InputError, match="is a package that trains"):
        mycc.replace_weights(path, file)


def test_gradients_applied_are_a_step(trained: tuple[Path, nn.Module]) -> None:
    path, model = trained
    step, apart, summed = mycc.load(path), mycc.load(path), mycc.load(path)
    x, y = batches(1)[0]
    loss, gradients = apart.gradients(x, y)
    apart.apply(gradients, weight_decay=0.01)
    assert loss == step.step(x, y, weight_decay=0.01)
    for _ in range(2):
        summed.accumulate(x, y, weight=0.5)
    summed.update(weight_decay=0.01)
    for name, value in step.parameters().items():
        np.testing.assert_allclose(apart.state[name], value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(summed.state[name], value, rtol=1e-5, atol=1e-6)
    twin, _ = eager(model)
    wide = twin.double()
    wanted = nn.functional.cross_entropy(wide(torch.from_numpy(x).double()), torch.from_numpy(y), label_smoothing=0.1)
    wanted.backward()
    for name, parameter in wide.named_parameters():
        if parameter.grad is not None:
            scale = parameter.grad.abs().max().item() + 1e-3  # of the first bias before a norm it is 0
            assert np.abs(gradients[name] - parameter.grad.numpy()).max() < 1e-5 * scale


def test_a_step_that_is_not_finite_changes_nothing(trained: tuple[Path, nn.Module]) -> None:
    path, _ = trained
    t, untouched = mycc.load(path), mycc.load(path)
    x, y = batches(1)[0]
    x[0, 0] = np.nan
    assert np.isnan(t.step(x, y))
    assert (t.steps, t.skipped_steps) == (0, 1)
    t.state["optimizer.skipped_steps"] = 0
    assert same(t, untouched)


def test_from_c(trained: tuple[Path, nn.Module], tmp_path: Path) -> None:
    """Steps, an evaluation, and a state that C has saved and loaded: the bits of the Python side."""
    path, _ = trained
    library = Path(_binding.__file__).with_name("libmycc.so")
    program, kept = tmp_path / "train", tmp_path / "state.bin"
    source = Path(__file__).parent / "train.c"
    include = Path(mycc.__file__).parent / "runtime" / "include"
    command = [
        "cc",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-I",
        include,
        source,
        library,
        f"-Wl,-rpath,{library.parent}",
    ]
    subprocess.run([*command, "-o", program], check=True)
    done = subprocess.run([program, path, kept], capture_output=True, text=True, check=True)
    losses = [float.fromhex(line) for line in done.stdout.split()]

    t = mycc.load(path)
    places = np.arange(16 * 12)
    given = [
        ((((places * 37 + i * 11) % 101).astype(np.float32) / np.float32(50) - np.float32(1)).reshape(16, 12),
         (np.arange(16) + i) % 4)
        for i in range(5)
    ]  # fmt: skip
    numbers = {"lr": 3e-3, "clip_norm": 1.0}
    wanted = []
    for i, (x, y) in enumerate(given[:4]):
        if i == 2:
            assert kept.read_bytes() == b"".join(t.state[name].tobytes() for name in t.state)
        wanted.append(float(t.step(x, y, **numbers)))
    evaluated, _ = t.evaluate(*given[4])
    assert losses == [*wanted, *wanted[2:], float(evaluated)]


def test_wrong_calls_change_nothing(trained: tuple[Path, nn.Module], tmp_path: Path) -> None:
    path, _ = trained
    t, untouched = mycc.load(path), mycc.load(path)
    x, y = batches(1)[0]
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    wrong = t.state_dict()
    wrong["last.bias"] = wrong["last.bias"][:2]
    calls = {
        "has no argument 'momentum'": lambda: t.step(x, y, momentum=0.9),
        "lr has to be a number, or one for each of the 2": lambda: t.step(x, y, lr=[1.0, 2.0, 3.0]),
        "the gradients lack 'last.weight'": lambda: t.apply({}),
        "no safetensors file": lambda: t.load(tmp_path / "no.safetensors"),
        "'last.bias' has the shape \\[2\\]": lambda: t.load_state_dict(wrong),
        "'last.weight' is missing": lambda: t.load_state_dict({n: v for n, v in wrong.items() if n != "last.weight"}),
    }
    for message, call in calls.items():
        with pytest.raises(mycc.InputError, match=message):
            call()
    assert same(t, untouched)


def test_no_torch_where_it_runs(trained: tuple[Path, nn.Module], tmp_path: Path) -> None:
    program = f"""
import sys, numpy as np, mycc
t = mycc.load({str(trained[0])!r})
t.step(np.zeros((4, 12), np.float32), np.zeros(4, np.int64), lr=0.1, betas=(0.5, 0.5))
t.save({str(tmp_path / "w.safetensors")!r}, optimizer=False)
assert "torch" not in sys.modules
sys.path.insert(0, {str(trained[0])!r})
import classifier  # the package by itself
assert classifier.model.step(np.zeros((4, 12), np.float32), np.zeros(4, np.int64)) > 0
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    from safetensors.torch import load_file

    names = set(load_file(tmp_path / "w.safetensors"))
    assert "last.weight" in names
    assert not any(name.startswith("optimizer") for name in names)
