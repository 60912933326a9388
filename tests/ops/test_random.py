"""Random operators: on a CPU torch's own numbers, those of eager after torch.manual_seed(seed)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

SEED = 1234
X = torch.linspace(-2, 2, 60).reshape(3, 4, 5)
CHANCES = torch.tensor([[0.1, 0.2, 0.3, 0.4], [4.0, 3.0, 0.0, 1.0]])


def _filled(method: str, *arguments: float, dtype: torch.dtype = torch.float32, n: int = 50) -> Callable[..., Any]:
    return lambda x: getattr(torch.empty(n, dtype=dtype), method)(*arguments)


#: name -> function of X
CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "rand": lambda x: torch.rand(7, 5),
    "rand of halves": lambda x: (torch.rand(40, dtype=torch.bfloat16), torch.rand(40, dtype=torch.float16)),
    "rand of doubles": lambda x: torch.rand(40, dtype=torch.float64),
    "rand_like in memory order": lambda x: torch.rand_like(x.transpose(0, 2)),
    "randn": lambda x: torch.randn(64),
    "randn with a rest": lambda x: torch.randn(37),
    "randn of few": lambda x: (torch.randn(3), torch.randn(2), torch.randn(17), torch.randn(1)),
    "randn of doubles": lambda x: torch.randn(5, 9, dtype=torch.float64),
    "randn_like": lambda x: torch.randn_like(x),
    "randint": lambda x: (torch.randint(10, (9,)), torch.randint(-5, 7, (3, 3)), torch.randint_like(x, 3, 9)),
    "randint of a wide range": lambda x: (torch.randint(2**40, (9,)), torch.randint(-(2**40), 2**41, (9,))),
    "randperm": lambda x: (torch.randperm(100), torch.randperm(1), torch.randperm(0)),
    "bernoulli": lambda x: (torch.bernoulli(x.sigmoid()), torch.bernoulli(x.double().sigmoid())),
    "bernoulli of one chance": _filled("bernoulli_", 0.3),
    "uniform": _filled("uniform_", -1.0, 3.0),
    "normal": _filled("normal_", 2.0, 3.0),
    "normal of tensors": lambda x: (torch.normal(x, 2.0), torch.normal(1.0, x.abs()), torch.normal(x, x.abs())),
    "exponential": _filled("exponential_", 2.5),
    "cauchy": _filled("cauchy_", 1.0, 2.0),
    "log_normal": _filled("log_normal_", 0.5, 0.25),
    "geometric": _filled("geometric_", 0.3),
    "random_": _filled("random_"),
    "multinomial": lambda x: torch.multinomial(CHANCES, 3),
    "multinomial of one": lambda x: torch.multinomial(CHANCES, 1),
    "multinomial with replacement": lambda x: torch.multinomial(CHANCES, 9, replacement=True),
    "dropout": lambda x: F.dropout(x, 0.3, True),
    "dropout of channels": lambda x: (F.dropout1d(x, 0.5, True), F.dropout2d(x[None], 0.5, True)),
    "alpha_dropout": lambda x: (F.alpha_dropout(x, 0.3, True), F.feature_alpha_dropout(x, 0.3, True)),
    "dropout of all": lambda x: (F.dropout(x, 1.0, True), F.dropout(x, 0.0, True)),
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.3, True),
    "attention with dropout": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
    "several": lambda x: F.dropout(torch.rand(9) + torch.randn(9), 0.5, True) * torch.randint(3, (9,)),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases as the entry points of one package."""
    entries = {f"case{i}": (function, (X,)) for i, function in enumerate(CASES.values())}
    return mycc.compile(entries, out=tmp_path_factory.mktemp("random") / "random.pkg")


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_torch(name: str, package: Path) -> None:
    function = CASES[name]
    entry = mycc.load(package).entry(f"case{list(CASES).index(name)}")
    torch.manual_seed(SEED)
    wanted = function(X)
    found = entry(X, seed=SEED)
    for y, r in zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(y, r, rtol=2e-5, atol=2e-6)


def test_same_on_any_number_of_threads(package: Path) -> None:
    big = torch.zeros(70000)
    path = mycc.compile(
        lambda x: (torch.randn_like(x), F.dropout(x + 1, 0.5, True)), (big,), out=package.parent / "big.pkg"
    )
    one, many = (mycc.load(path, threads=n)(big, seed=7) for n in (1, 3))
    assert all(torch.equal(a, b) for a, b in zip(one, many, strict=True))
    assert abs(float(one[0].mean())) < 0.02
    assert abs(float(one[0].std()) - 1) < 0.02
    assert abs(float(one[1].mean()) - 1) < 0.02


def test_seeds(package: Path) -> None:
    """A call's own seed, the model's next one, and the numbers after it."""
    model = mycc.load(package)
    first = [model(X) for _ in range(3)]
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(mycc.load(package)(X, seed=i), first[i]) for i in range(3))
    model.seed(1)
    assert torch.equal(model(X), first[1])
    assert torch.equal(model(X, seed=0), first[0])
    assert torch.equal(model(X), first[2])
    torch.manual_seed(-3)
    assert torch.equal(model(X, seed=-3), torch.rand(7, 5))
    with pytest.raises(mycc.InputError, match="seed has to be a whole number, not a float"):
        model(X, seed=0.5)


def test_an_argument_of_that_name_is_the_model_s(tmp_path: Path) -> None:
    path = mycc.compile(lambda seed: seed + torch.rand(3), (torch.zeros(3),), out=tmp_path / "own.pkg")
    torch.manual_seed(0)
    assert torch.equal(mycc.load(path)(seed=torch.ones(3)), torch.rand(3) + 1)


def test_weights_of_multinomial_are_checked(package: Path, tmp_path: Path) -> None:
    draw = mycc.compile(lambda w: torch.multinomial(w, 4, True), (CHANCES,), out=tmp_path / "draw.pkg")
    with pytest.raises(mycc.RunError, match="weights of multinomial must be numbers of at least 0"):
        mycc.load(draw)(-CHANCES)
    with pytest.raises(mycc.RunError, match="weights of multinomial must not all be 0"):
        mycc.load(draw)(CHANCES * 0)


def test_random_models_are_verified(tmp_path: Path) -> None:
    """The float64 reference draws the numbers of the model's own types."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
    with pytest.warns(UserWarning, match=r"training mode: it drops values at random \(in module '1' \(Dropout\)\)"):
        path = mycc.compile(model, (torch.randn(5, 8),), out=tmp_path / "drop.pkg")
    check = mycc.load(path).manifest["check"]
    assert 0 < max(check["error"]) < 1e-6


@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_that_sets_the_seed_is_refused(tmp_path: Path, seed: int) -> None:
    """Also where it is the one that the generator has; a model that draws nothing may do so."""

    def numbers(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return torch.randn_like(x) + x

    def none(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return x * 2

    torch.manual_seed(seed)
    with pytest.raises(mycc.CompileError, match=r"the model calls torch\.manual_seed"):
        mycc.compile(numbers, (torch.ones(3),), out=tmp_path / "model.pkg")
    model = mycc.load(mycc.compile(none, (torch.ones(3),), out=tmp_path / "model.pkg"))
    assert model(torch.ones(3)).tolist() == [2, 2, 2]
