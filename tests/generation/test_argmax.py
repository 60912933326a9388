"""The entry point `argmax` of packages for GPUs: which of the logits of a row is the largest, at every edge."""

from __future__ import annotations

from pathlib import Path

import mycc
import numpy as np
import pytest
from mycc.compiler.generation.argmax import argmax_entry

from .folders import make_network

_NAN, _INF = float("nan"), float("inf")


@pytest.mark.parametrize("vocabulary", [24, 29])  # 29 is one part of a row
def test_the_first_of_the_largest_logits(tmp_path: Path, vocabulary: int) -> None:
    module, args, _, _ = argmax_entry(vocabulary, 8, None)
    out = tmp_path / "argmax.pkg"
    mycc.compile(module, args, out=out, target="cpu", verify=False, progress=False)
    logits = np.random.default_rng(0).normal(size=(8, vocabulary)).astype(np.float32)
    logits[1, [3, 20]] = 9  # equal ones, in several parts
    logits[2] = 0
    logits[3] = -_INF
    logits[4, [2, 23]] = _INF
    logits[5, [7, 21]] = _NAN, _NAN
    logits[6, 5], logits[6, 22] = _INF, _NAN
    logits[7] = -0.0
    logits[7, 9] = 0.0
    assert mycc.load(out)(logits).tolist() == logits.argmax(-1).tolist()


def test_packages_for_gpus_have_it(tmp_path: Path) -> None:
    out = tmp_path / "text.pkg"
    options = {"target": "cpu,cuda:sm_90", "max_length": 32, "max_batch": 2, "progress": False, "verify": False}
    mycc.compile_generation(make_network("llama", num_hidden_layers=1), out=out, **options)
    model = mycc.load(out)
    assert list(model.entries) == ["prefill", "decode", "copy", "read", "argmax", "draw", "draw_nucleus", "candidates"]
    assert model.device == "cpu"
    assert len(list(model.generate_tokens([5, 6], max_new_tokens=3, ignore_eos=True))) == 3
