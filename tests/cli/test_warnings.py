"""Warnings of a compile name the line that called mycc."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch
from torch import nn


def test_a_warning_stands_at_the_users_call(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())  # in training mode
    with pytest.warns(UserWarning, match="training mode") as found:
        mycc.compile(model, (torch.randn(2, 4),), out=tmp_path / "m.pkg", verify=False)
    own = [w for w in found if "training mode" in str(w.message)]
    assert {Path(w.filename).name for w in own} == {"test_warnings.py"}
