"""Branches and loops in the schedule: one row of kernels, the steps over it, and the memory that a loop needs."""

from __future__ import annotations

from mycc.compiler.ir.buffers import Buffer
from mycc.compiler.ir.index import Size, as_index
from mycc.compiler.ir.program import Branches, Define, Loop
from mycc.compiler.schedule.regions import span_in_loops
from mycc.compiler.schedule.steps import ChooseStep, RepeatStep, steps_of

FLAG = Buffer("flag", "bool", as_index(1), "temp")
TEMP = Buffer("t", "f32", as_index(8), "temp")
CARRY = Buffer("c", "f32", as_index(8), "carry")


def test_steps() -> None:
    iteration = Size("iteration", 0, 4)
    loop = Loop(None, iteration, as_index(5), 1, 1, 6)
    branch = Branches(FLAG, 2, 3, 5)
    define = Define(Size("u0", 0, None), TEMP, 6)
    assert steps_of(7, [define], [loop, branch]) == (
        0,
        RepeatStep((), None, iteration, as_index(5), (1, ChooseStep(FLAG, (2,), (3, 4)), 5)),
        define,
        6,
    )


def test_a_branch_at_the_start_of_a_loop() -> None:
    loop, branch = Loop(FLAG, None, None, 0, 1, 4), Branches(FLAG, 1, 2, 3)
    assert steps_of(4, [], [loop, branch]) == (RepeatStep((0,), FLAG, None, None, (ChooseStep(FLAG, (1,), (2,)), 3)),)


def test_an_empty_side() -> None:
    assert steps_of(2, [], [Branches(FLAG, 0, 1, 1)]) == (ChooseStep(FLAG, (0,), ()), 1)


def test_spans() -> None:
    loops = [Loop(FLAG, None, None, 2, 3, 8), Loop(None, Size("iteration", 0, 1), as_index(2), 4, 4, 6)]
    assert span_in_loops(5, 5, TEMP, loops) == (5, 5)  # of one iteration alone
    assert span_in_loops(0, 5, TEMP, loops) == (0, 7)  # every iteration reads it
    assert span_in_loops(3, 5, TEMP, loops) == (3, 5)  # every iteration of the inner loop reads it
    assert span_in_loops(3, 4, TEMP, loops) == (3, 5)
    assert span_in_loops(5, 9, TEMP, loops) == (2, 9)  # read behind the loop
    assert span_in_loops(5, 5, CARRY, loops) == (2, 7)  # from iteration to iteration
    assert span_in_loops(2, 2, FLAG, loops) == (2, 7)
    assert span_in_loops(0, 1, TEMP, loops) == (0, 1)
    assert span_in_loops(1, 1, FLAG, [Branches(FLAG, 3, 4, 5)]) == (1, 3)
