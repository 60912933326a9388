"""Bools of any byte, and sizes that no memory holds, in packages on a real GPU. Marked `gpu`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc import RunError

from ..helpers.programs import Call1
from ..models.test_large_sizes import CASES, ROWS, X
from ..ops.test_bool_bytes import BYTES, FUNCTIONS, N, given

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SIZES = ("intermediate", "output", "unstored", "item", "repeats")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("edges") / "edges.pkg"
    x, mask = torch.linspace(-2, 2, N), torch.arange(N) % 2 == 0
    entries: dict[str, Any] = {f.__name__.strip("_"): (Call1(f).eval(), (x, mask)) for f in FUNCTIONS}
    for name in SIZES:
        function, inputs, _, _ = CASES[name]
        shapes = ({0: ROWS} if inputs[0] is X else {},)
        entries[name] = (Call1(function).eval(), inputs, None, (shapes,))
    mycc.compile(entries, out=path, target="cuda", verify=False)
    return mycc.load(path)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__.strip("_"))
def test_a_byte_that_is_not_0_is_true(model: Any, function: Callable[..., Any]) -> None:
    x = np.linspace(-2, 2, N).astype(np.float32)
    got = model.entry(function.__name__.strip("_"))(x, given())
    want = function(torch.from_numpy(x), torch.from_numpy(BYTES != 0))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SIZES)
def test_what_is_too_large_is_an_error(model: Any, name: str) -> None:
    with pytest.raises(RunError, match="out of memory"):
        model.entry(name)(*CASES[name][2])
