"""transformers' DynamicCache as an argument and a result of a package, its length dynamic."""

from __future__ import annotations

import copy
from typing import Any

import mycc
import pytest
import torch
from torch.export import Dim

DynamicCache = pytest.importorskip("transformers", reason="transformers brings the cache").DynamicCache

LAYERS = 2


class Step(torch.nn.Module):
    def forward(self, x: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        total = x.sum(2)
        for layer in range(LAYERS):
            keys, values = cache.update(x * (layer + 2), x * (layer + 4), layer)
            total = total + keys.sum(2) * values.mean(2)
        return total, cache


def filled(length: int) -> Any:
    cache = DynamicCache()
    for layer in range(LAYERS):
        cache.update(torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4), layer)
    return cache


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> mycc.Model:
    dims = [{2: Dim("length", min=1, max=100)}] * LAYERS
    shapes = {"x": None, "cache": {"key_cache": dims, "value_cache": dims}}
    out = tmp_path_factory.mktemp("cache") / "cache.pkg"
    return mycc.load(mycc.compile(Step(), (torch.randn(1, 2, 1, 4), filled(3)), out=out, dynamic_shapes=shapes))


def test_names(package: mycc.Model) -> None:
    names = [spec.name for spec in package.signature.inputs]
    assert names == ["x", "cache_key_cache_0", "cache_key_cache_1", "cache_value_cache_0", "cache_value_cache_1"]


@pytest.mark.parametrize("length", [1, 3, 17])
def test_a_cache_goes_in_and_comes_out(length: int, package: mycc.Model) -> None:
    x, cache = torch.randn(1, 2, 1, 4), filled(length)
    wanted, after = Step()(x, copy.deepcopy(cache))
    found, out = package(x, cache)
    torch.testing.assert_close(found, wanted)
    assert cache.get_seq_length() == length
    for layer in range(LAYERS):
        torch.testing.assert_close(out.key_cache[layer], after.layers[layer].keys, rtol=0, atol=0)
        torch.testing.assert_close(out.value_cache[layer], after.layers[layer].values, rtol=0, atol=0)
    wanted, _ = Step()(x, after)
    for given in (out, {"key_cache": out.key_cache, "value_cache": out.value_cache}):
        torch.testing.assert_close(package(x, given)[0], wanted)
    again = DynamicCache(list(zip(out.key_cache, out.value_cache, strict=True)))
    torch.testing.assert_close(package(x, again)[0], wanted)
