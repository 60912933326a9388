"""Warnings of a compile name the line that called mycc."""

from __future__ import annotations

import warnings
from pathlib import Path

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from torch import nn


def test_a_warning_stands_at_the_users_call(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())  # in training mode
    with pytest.warns(UserWarning, match="training mode") as found:
        mycc.compile(model, (torch.randn(2, 4),), out=tmp_path / "m.pkg", verify=False)
    own = [w for w in found if "training mode" in str(w.message)]
    assert {Path(w.filename).name for w in own} == {"test_warnings.py"}


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM])
def test_recurrent_layers_say_nothing_of_the_attributes_that_torch_sets(layer: type[nn.Module]) -> None:
    """torch.export tells of `_flat_weights`, which nobody can register as buffers."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer(4, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)[0]

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        capture(Recurrent().eval(), (torch.randn(2, 3, 4),))
    assert not [str(w.message) for w in found if "_flat_weights" in str(w.message)]
