"""The functions of a package for text, as they are captured."""

from __future__ import annotations

import mycc
import pytest
from mycc.compiler.api import compile_entries, compile_request, run_request
from mycc.compiler.capture.export import capture_request
from mycc.compiler.generation.blocks import block_count
from mycc.compiler.generation.compile import _entries
from mycc.compiler.options import CompileOptions
from mycc.compiler.request import Task

from .folders import greedy, make_network


@pytest.mark.parametrize("texts", [1, 2, 3])
def test_sizes_that_change(texts: int) -> None:
    """Two texts too: torch.export takes a size from 1 to 2 for a constant."""
    entries, facts = _entries(
        make_network("llama", num_hidden_layers=1), 64, texts, 16, False, 0, block_count(None, 64, texts)
    )
    graphs = {entry.name: capture_request(entry) for entry in compile_entries(entries)}
    assert [s.name for s in graphs["prefill"].symbols] == ["count"]
    assert [s.name for s in graphs["decode"].symbols] == (["batch"] if texts > 1 else [])
    assert facts["texts"] == texts


@pytest.mark.slow
def test_the_form_for_gpus_masks_what_is_not_filled(tmp_path) -> None:
    """No size depends on a value there: attention reads the whole cache."""
    network = make_network("mistral", sliding_window=24)
    prompt = [(7 * i * i + 3 * i + 11) % 390 + 4 for i in range(36)]
    entries, facts = _entries(network, 128, 2, 16, True, 0, block_count(None, 128, 2))
    options = CompileOptions.of(target="cpu", verify=False, specialize="batch=1")
    task = Task({"name": "text-generation", **facts, "settings": {}})
    run_request(compile_request(compile_entries(entries), options, tmp_path / "text.pkg", None, task), [])
    model = mycc.load(tmp_path / "text.pkg")
    assert not any(row["computed"] for row in model.manifest["entry_points"])
    assert list(model.generate_tokens(prompt, max_new_tokens=40)) == greedy(network, prompt, 40)
