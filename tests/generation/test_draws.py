"""The entry points `draw` and `candidates` of packages for GPUs, against the sampler on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import numpy as np
import pytest
import torch
from mycc.compiler.generation.draws import CANDIDATES, draw_entries
from mycc.runtime.generation.options import read_options
from mycc.runtime.generation.sampling import Sampler

VOCABULARIES = [509, 4096, 3000, 40]


def compiled(vocabulary: int, folder: Path) -> Any:
    entries = draw_entries(vocabulary, 4, {0: torch.export.Dim("batch", min=1, max=9)})
    package = mycc.compile(entries, out=folder / "draws.pkg", verify=False, progress=False)
    return mycc.load(package)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_as_the_sampler_does(vocabulary: int, tmp_path: Path) -> None:
    model = compiled(vocabulary, tmp_path)
    numbers, cut = np.random.default_rng(vocabulary), 0
    bounds = [(1.0, 0.0), (0.9037, 0.0), (0.5013, 0.1), (0.0113, 0.0), (1.0, 0.3), (0.9987, 1.0), (1e-300, 0.0)]
    for seed, (spread, heat) in enumerate([(1, 1.0), (4, 0.7), (40, 1.7), (0, 0.3), (0.01, 1.0)]):
        logits = (numbers.standard_normal((9, vocabulary)) * spread).astype(np.float32)
        if seed % 2:
            logits = np.round(logits)  # ties
            logits[1, : vocabulary // 2] = -np.inf
        heats = np.full(9, heat)
        for top_p, min_p in bounds:
            given = {"temperature": heat, "seed": seed, "top_p": top_p, "min_p": min_p}
            sampler, parts = Sampler(read_options({}, given, vocabulary), [1]), np.random.default_rng(seed).random(9)
            wanted = [sampler.choose(row).token for row in logits]
            found = model.entry("draw_nucleus")(logits, heats, parts, np.full(9, top_p), np.full(9, min_p)).tolist()
            known = [i for i in range(9) if found[i] >= 0]
            assert len(known) >= 8
            assert [found[i] for i in known] == [wanted[i] for i in known], (given, spread)
            cut += len(set(wanted)) > 2
            if (top_p, min_p) == (1.0, 0.0):
                assert model.entry("draw")(logits, heats, parts).tolist() == wanted
        values, tokens = (np.asarray(x) for x in model.entry("candidates")(logits))
        order = np.argsort(-logits, axis=1, kind="stable")[:, :CANDIDATES]
        np.testing.assert_array_equal(tokens, order)
        np.testing.assert_array_equal(values, np.take_along_axis(logits, order, 1))
    assert cut > 10


def test_what_is_no_number_is_left_to_the_host(tmp_path: Path) -> None:
    model = compiled(4096, tmp_path)
    logits = np.zeros((3, 4096), np.float32)
    logits[0, 1000], logits[1, 77] = np.nan, np.inf
    ones, parts = np.ones(3), np.full(3, 0.25)
    for name, more in (("draw", ()), ("draw_nucleus", (ones, ones * 0)), ("draw_nucleus", (ones * 0.5001, ones * 0))):
        draw, half = model.entry(name), len(more) == 2 and more[0][0] < 1
        assert draw(logits, ones, parts, *more).tolist() == [-1, -1, 512 if half else 1024]
        last = tuple(x[2:] for x in more)
        assert draw(logits[2:], ones[2:], np.array([1.0]), *last).tolist() == [-1]
        assert draw(logits[2:], ones[2:], np.array([0.0]), *last).tolist() == [0]
