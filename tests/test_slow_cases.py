"""Which cases of tests `make test` leaves out."""

from __future__ import annotations

from .slow_cases import WHOLE, choose


def test_the_longest_are_left_out_and_one_of_each_file_stays() -> None:
    durations = {"a::t[1]": 50.0, "a::t[2]": 40.0, "a::u": 90.0, "b::v[x]": 30.0, "b::v[y]": 0.5, "c::w": 60.0}
    assert choose(durations, frozenset(), 500.0) == []
    assert choose(durations, frozenset(), 190.0) == ["a::u"]
    assert choose(durations, frozenset(), 135.0) == ["a::t[1]", "a::u"]  # c has one test
    assert choose(durations, frozenset(), 1.0) == ["a::t[1]", "a::u", "b::v[x]"]  # the last of b is short


def test_one_case_of_each_test_stays_unless_it_takes_long() -> None:
    durations = {"a::t[1]": 1.0, "a::t[2]": 0.9, "a::u": 1.5, "a::v": 3.0, "a::w": 0.1}
    assert choose(durations, frozenset(), 0.0) == ["a::t[1]", "a::v"]


def test_cases_that_a_run_left_out_stay_on_the_list() -> None:
    assert choose({"a::t[2]": 3.0}, frozenset({"a::t[1]"}), 100.0) == ["a::t[1]"]
    assert choose({"a::t[1]": 3.0, "a::t[2]": 3.0}, frozenset({"a::t[1]"}), 100.0) == []


def test_cases_that_guard_an_operator_or_a_pass_each_stay() -> None:
    one, other = (f"{WHOLE[0]}[{name}]" for name in ("svd", "eigh"))
    assert choose({one: 9.0, other: 9.0}, frozenset({one}), 1.0) == []
    assert choose({other: 9.0}, frozenset({one}), 1.0) == []
