"""examples/generate: tokens streamed from a package without torch are those that transformers chooses, 200 of 200."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import mycc
import pytest

from ..generation.folders import greedy
from ..helpers.scripts import load_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "generate"
COUNT = 200


def language_models() -> ModuleType:
    return load_script(EXAMPLE / "language_models.py")


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("gpt2-small", 256),
        ("llama-small", 256),
        pytest.param("gpt2", 256, marks=pytest.mark.slow),
        pytest.param("llama", 256, marks=pytest.mark.slow),
    ],
)
def test_greedy_tokens(name: str, length: int, tmp_path: Path) -> None:
    module = language_models()
    network = module.make_network(name)
    prompt = [3, 141, 59, 26, 53]
    wanted = greedy(network, prompt, COUNT)
    package = mycc.compile_generation(network, out=tmp_path / "text.pkg", max_length=length)
    rows = {row["name"]: row for row in mycc.load(package).manifest["entry_points"]}
    cache = mycc.load(package).manifest["state"][0]
    layer = 4 * math.prod(cache["shape"])
    for kernel in rows["decode"]["kernels"]:  # no kernel writes as much as the cache of a layer
        assert int(kernel["writes"]) < layer or "scaled_dot_product" not in kernel["name"], kernel
    command = [sys.executable, "-X", "importtime", str(EXAMPLE / "generate.py"), str(package), *map(str, prompt)]
    done = subprocess.run([*command, "--count", str(COUNT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch" not in done.stderr
    found = [int(word) for word in done.stdout.split()]
    assert sum(a == b for a, b in zip(found, wanted, strict=True)) == COUNT
    assert len(set(wanted)) > 10
