"""Text generation with integer weights: the tokens are those of the network that the integers stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.number_formats import parse_quantization
from mycc.compiler.quantize.weights import to_integers
from torch import nn

from .folders import greedy, make_folder


def restore_weights(network: Any, text: str) -> None:
    """Every matrix of a linear layer or of an embedding becomes what its integers stand for."""
    wanted = parse_quantization(text)
    assert wanted is not None
    weights = {m.weight for m in network.modules() if isinstance(m, nn.Linear | nn.Embedding)}
    with torch.no_grad():
        for weight in weights:
            integers = to_integers(weight, wanted.format)
            parts = integers.values.float().reshape(*integers.scales.shape, -1)
            weight.copy_((parts * integers.scales.float().unsqueeze(-1)).reshape(weight.shape))


@pytest.mark.parametrize("form", [pytest.param("int8", marks=pytest.mark.slow), "int4:group=32"])
def test_tokens_are_those_of_the_integers(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    network = make_folder(folder, "llama", initializer_range=0.05)
    options = {"codegen.sources": False}
    package = mycc.compile_generation(
        folder, out=tmp_path / "text.pkg", max_length=64, chunk=16, quantize=form, options=options
    )
    restore_weights(network, form)
    prompt = [5, 6, 7, 8, 9]
    found = list(mycc.load(package).generate_tokens(prompt, max_new_tokens=30, ignore_eos=True))
    assert found == greedy(network, prompt, 30)
    assert len(set(found)) > 5
