"""While a compile runs Python looks for garbage rarely; behind it as before."""

from __future__ import annotations

import gc
import weakref

import pytest
from mycc.compiler.garbage import give_back, rare_collections


def test_thresholds_come_back() -> None:
    before = gc.get_threshold()
    with rare_collections():
        inside = gc.get_threshold()
        with rare_collections():
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == inside
    assert inside[0] > before[0]
    assert inside[1:] == before[1:]
    assert gc.get_threshold() == before


def test_they_come_back_from_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), rare_collections():
        raise KeyError
    assert gc.get_threshold() == before


def test_what_the_user_has_switched_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with rare_collections():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_what_only_cycles_hold_is_freed() -> None:
    class Held:
        pass

    one, other = Held(), Held()
    one.other, other.other = other, one  # type: ignore[attr-defined]
    gone = weakref.ref(one)
    gc.disable()
    try:
        del one, other
        assert gone() is not None
        give_back()
        assert gone() is None
    finally:
        gc.enable()
