"""Dicts and lists among the arguments that forward changes: results are right, and a note says what is not done."""

from __future__ import annotations

import torch
from mycc.compiler.capture import capture
from mycc.compiler.capture.containers import changed_containers


class Adds(torch.nn.Module):
    def forward(self, given, rows):
        given["z"] = given["x"] + 1
        rows[0] = rows[0] * 2
        given["y"].add_(1)  # of a tensor, in place: the caller sees it
        return given["z"] * rows[0]


def test_a_note_names_the_places() -> None:
    example = {"x": torch.ones(3), "y": torch.ones(3)}
    graph = capture(Adds(), (example, [torch.ones(3)]))
    (note,) = graph.notes
    assert note.startswith("the model changes its arguments[0]['z'], its arguments[1][0]: ")
    assert list(example) == ["x", "y"]
    assert [change.input for change in graph.in_place] == [1]


def test_places() -> None:
    a, b = torch.ones(1), torch.ones(1)
    assert list(changed_containers({"k": a, "gone": b}, {"k": b, "new": a}, "d")) == ["d['k']", "d['gone']", "d['new']"]
    assert list(changed_containers([a, {"k": b}], [a, {"k": b}, a], "l")) == ["l[2]"]
    assert list(changed_containers((a, [b]), (a, [b]), "t")) == []
