"""The zoo of bench/ at its full sizes, from one dynamic package each: minutes, and several gigabytes of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mycc
import pytest
import torch
from mycc.compiler.capture import capture
from mycc.compiler.verify.compare import errors
from mycc.compiler.verify.reference import reference

from . import small_zoo
from .support import tolerance

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", small_zoo.NAMES)
def test_as_right_as_eager(zoo: Any, name: str, tmp_path: Path) -> None:
    entry = zoo.ZOO[name]
    model, shapes = entry.build(), entry.dynamic_shapes()
    package = mycc.load(mycc.compile(model, entry.inputs(2), dynamic_shapes=shapes, out=tmp_path / "model.pkg"))
    graph = capture(model, entry.inputs(2), dynamic_shapes=shapes)
    for batch, sequence in ((1, 1), (2, 17), (1, 128), (7, 17), (2, 300)) if entry.text else ((1, 0), (2, 0), (7, 0)):
        inputs = entry.inputs(batch, sequence)
        wanted = reference(graph, inputs)
        with torch.no_grad():
            (own,) = errors([model(*inputs)], wanted)
        (found,) = errors([package(*inputs)], wanted)
        assert found <= tolerance(own), f"batch {batch}, sequence {sequence}: error {found:.2e}, eager {own:.2e}"
