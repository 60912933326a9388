"""The check of the x87 stack that runs after every test sees what is left on it."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from .helpers.x87 import X87Stack


@pytest.mark.skipif(not X87Stack.available, reason="only x86-64 has an x87 stack")
def test_values_that_are_left_are_counted_and_removed() -> None:
    stack = X87Stack()
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("d9e8 c3"))  # fld1; ret
    push = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    assert stack.depth() == 0
    push()
    push()
    assert stack.depth() == 2
    stack.empty()
    assert stack.depth() == 0
