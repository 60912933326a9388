"""Convolutions to one panel of channels, whose rows are whole runs of 14 pixels: taps of a kernel row are held."""

from __future__ import annotations

from pathlib import Path

import mycc
import pytest
import torch

#: dimensions, channels in and out, kernel, maps, zeros around them: rows of one run, two, and several; zeros at both
#: ends, other zeros, none; rows that tasks share; channels that fill no panel
CASES = [
    (3, 16, 16, 5, (8, 28, 28), 2),
    (3, 16, 12, 3, (6, 14, 14), 1),
    (2, 16, 16, 7, (28, 28), 3),
    (2, 16, 9, 5, (30, 56), 2),
    (2, 8, 16, 5, (42, 42), 2),
    (2, 16, 16, 5, (32, 32), 0),
    (2, 3, 13, 7, (112, 112), 3),
    (2, 16, 16, 5, (20, 30), 1),
    (1, 24, 16, 5, (1400,), 2),
    (1, 31, 10, 7, (294,), 3),
]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}d_{c[1]}_{c[2]}_{c[3]}")
def test_taps(case: tuple[int, int, int, int, tuple[int, ...], int], batch: int, tmp_path: Path) -> None:
    """Twice eager's error at most, a rounding more; the same bits at any number of threads."""
    dimensions, inputs, outputs, kernel, maps, padding = case
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    conv = kinds[dimensions - 1](inputs, outputs, kernel, padding=padding)
    model = torch.nn.Sequential(conv, torch.nn.ReLU()).eval()
    x = torch.randn(batch, inputs, *maps)
    path = mycc.compile(model, (x,), out=tmp_path / "conv.pkg", verify=False, target="cpu")
    one, *others = (torch.as_tensor(mycc.load(path, threads=threads)(x)) for threads in (1, 2, 5))
    for other in others:
        assert torch.equal(one, other)
    with torch.inference_mode():
        eager = model(x)
        want = model.double()(x.double())
    assert (one - want).abs().max() <= 2 * (eager - want).abs().max() + 1e-6
