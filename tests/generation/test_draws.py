"""The entry points `draw` and `candidates` of packages for GPUs, against the sampler on the host."""

from __future__ import annotations

from pathlib import Path

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.generation.draws import CANDIDATES, draw_entries
from mycc.runtime.generation.options import read_options
from mycc.runtime.generation.sampling import Sampler

VOCABULARIES = [509, 4096, 3000, 40]


def compiled(vocabulary: int, folder: Path) -> tuple[object, object]:
    entries = draw_entries(vocabulary, 4, {0: torch.export.Dim("batch", min=1, max=9)})
    package = mycc.compile(entries, out=folder / "draws.pkg", verify=False, progress=False)
    model = mycc.load(package)
    return model.entry("draw"), model.entry("candidates")


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_as_the_sampler_does(vocabulary: int, tmp_path: Path) -> None:
    draw, candidates = compiled(vocabulary, tmp_path)
    numbers = np.random.default_rng(vocabulary)
    for seed, (spread, heat) in enumerate([(1, 1.0), (4, 0.7), (40, 1.7), (0, 0.3)]):
        logits = (numbers.standard_normal((9, vocabulary)) * spread).astype(np.float32)
        if seed % 2:
            logits = np.round(logits)  # ties
            logits[1, : vocabulary // 2] = -np.inf
        options = read_options({}, {"temperature": heat, "seed": seed}, vocabulary)
        parts = np.random.default_rng(seed).random(9)
        sampler = Sampler(options, [1])
        wanted = [sampler.choose(row).token for row in logits]
        heats = np.full(9, heat)
        assert draw(logits, heats, parts).tolist() == wanted  # type: ignore[operator]
        values, tokens, sums = (np.asarray(x) for x in candidates(logits, heats))  # type: ignore[operator]
        order = np.argsort(-logits, axis=1, kind="stable")[:, :CANDIDATES]
        np.testing.assert_array_equal(tokens, order)
        np.testing.assert_array_equal(values, np.take_along_axis(logits, order, 1))
        wide = logits.astype(np.float64) / heat
        np.testing.assert_allclose(sums, np.exp(wide - wide.max(1, keepdims=True)).sum(1), rtol=1e-12)


def test_what_is_no_number_is_left_to_the_host(tmp_path: Path) -> None:
    draw, candidates = compiled(4096, tmp_path)
    logits = np.zeros((3, 4096), np.float32)
    logits[0, 1000], logits[1, 77] = np.nan, np.inf
    heats, parts = np.ones(3), np.full(3, 0.25)
    assert draw(logits, heats, parts).tolist() == [-1, -1, 1024]  # type: ignore[operator]
    sums = candidates(logits, heats)[2]  # type: ignore[operator]
    assert [bool(np.isfinite(x)) for x in sums] == [False, False, True]
    assert draw(logits[2:], heats[2:], np.array([1.0])).tolist() == [-1]  # type: ignore[operator]
    assert draw(logits[2:], heats[2:], np.array([0.0])).tolist() == [0]  # type: ignore[operator]
