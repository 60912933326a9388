"""Random operators: distributions by their moments, other numbers at every call."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch

N = 20000


def uniform(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a, b = torch.rand_like(x), torch.rand_like(x)
    return a, b, torch.randn_like(x), torch.randint_like(x, 3, 9), torch.bernoulli(torch.full_like(x, 0.3))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    return mycc.compile(uniform, (torch.zeros(N),), out=folder / "random.pkg", cache_dir=folder / "cache")


def test_moments(package: Path) -> None:
    a, b, normal, whole, coin = mycc.load(package)(torch.zeros(N))
    bound = 5 / N**0.5
    for sample, mean, deviation in ((a, 0.5, 12**-0.5), (b, 0.5, 12**-0.5), (normal, 0.0, 1.0), (coin, 0.3, 0.46)):
        assert abs(float(sample.mean()) - mean) < bound
        assert abs(float(sample.std()) - deviation) < bound
    assert float(a.min()) >= 0.0
    assert float(a.max()) < 1.0
    assert set(whole.tolist()) == {3.0, 4.0, 5.0, 6.0, 7.0, 8.0}
    assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < bound


def test_every_call_draws_again(package: Path) -> None:
    model = mycc.load(package)
    first, second = model(torch.zeros(N))[0], model(torch.zeros(N))[0]
    assert not torch.equal(first, second)


def test_without_replacement_and_by_weight(tmp_path: Path) -> None:
    weights = torch.tensor([[0.0, 1.0, 2.0, 5.0]]).repeat(2000, 1)

    def draw(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.multinomial(w, 3), torch.multinomial(w, 1, replacement=True)

    path = mycc.compile(draw, (weights,), out=tmp_path / "draw.pkg", cache_dir=tmp_path / "cache")
    several, one = mycc.load(path)(weights)
    assert several.sort(1).values.equal(torch.tensor([[1, 2, 3]]).repeat(2000, 1))
    shares = torch.bincount(one.flatten(), minlength=4) / 2000
    assert torch.allclose(shares, torch.tensor([0.0, 0.125, 0.25, 0.625]), atol=0.06)
