from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mycc.compiler.build import split_units

COSTS = st.lists(st.floats(0.01, 100), max_size=30)


def test_two_groups_finish_together() -> None:
    kernels = [("a", "A", 5.0), ("b", "B", 1.0), ("c", "C", 3.0), ("d", "D", 3.0), ("e", "E", 2.0)]
    assert split_units(kernels, 2) == ((("a", "A"), ("e", "E")), (("b", "B"), ("c", "C"), ("d", "D")))


def test_there_are_no_empty_groups() -> None:
    assert split_units([("a", "A", 1.0)], 4) == ((("a", "A"),),)
    assert split_units([], 4) == ()
    with pytest.raises(ValueError, match="0 translation units"):
        split_units([], 0)


@given(COSTS, st.integers(1, 6))
def test_every_kernel_once_and_balanced(costs: list[float], parts: int) -> None:
    kernels = [(f"k{i}", str(i), cost) for i, cost in enumerate(costs)]
    groups = split_units(kernels, parts)
    assert sorted(int(text) for group in groups for _, text in group) == list(range(len(costs)))
    loads = [sum(costs[int(text)] for _, text in group) for group in groups]
    if costs:  # list scheduling: no group exceeds the mean by more than the dearest kernel
        assert max(loads) <= sum(costs) / len(groups) + max(costs) + 1e-9
    assert groups == split_units(list(kernels), parts)
