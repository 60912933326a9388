"""Guards that torch.export cannot prove."""

from __future__ import annotations

import pytest
from mycc.compiler.capture.proofs import guards_hold
from torch.export import Dim

SIZE = "L['tensors'][1].size()[0]"
HEAD = 'Constraints violated (n)! For more information, run with TORCH_LOGS="+dynamic".\n'
DIMS = [{}, {0: Dim("n", min=1, max=512)}]


def complaint(guard: str) -> str:
    return f"  - Not all values of n = {SIZE} in the specified range n <= 512 satisfy the generated guard {guard}.\n"


@pytest.mark.parametrize(
    ("guard", "holds"),
    [
        (f"min(64*{SIZE}, 192*{SIZE}) == (64*{SIZE})", True),
        (f"{SIZE} <= 512", True),
        (f"({SIZE}//2)*2 <= {SIZE} and {SIZE} != 0", True),
        (f"{SIZE} <= 511", False),
        (f"{SIZE} != 300", False),
        (f"min(64*{SIZE}, 192) == (64*{SIZE})", False),
        (f"__import__('os') or {SIZE}", False),
        ("1 // 0 == 1", False),
    ],
)
def test_a_guard_holds_for_all_sizes_or_not(guard: str, holds: bool) -> None:
    assert guards_hold(HEAD + complaint(guard), DIMS) is holds


def test_every_complaint_has_to_be_a_guard_that_holds() -> None:
    good = complaint(f"{SIZE} >= 1")
    assert guards_hold(HEAD + good + good, DIMS)
    assert not guards_hold(HEAD + good + complaint(f"{SIZE} >= 2"), DIMS)
    assert not guards_hold(HEAD + good + "  - You marked n as dynamic but your code specialized it to be 4.\n", DIMS)
    assert not guards_hold(HEAD, DIMS)


def test_without_bounds_nothing_is_proved() -> None:
    assert not guards_hold(HEAD + complaint(f"{SIZE} >= 0"), [{}, {0: Dim("n")}])
    assert not guards_hold(HEAD + complaint(f"{SIZE} >= 0"), [{}, {}])
