"""The x87 register stack of this thread, which a call has to leave empty (System V ABI, x86-64, 3.2.1).

Code that leaves a value on it does no harm by itself. When four are left, numpy's norms and eigenvalues become NaN in
whatever test comes next, because its BLAS counts on an empty stack.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Callable

#: fnstenv [rdi]; fldenv [rdi]; ret. The second gives back the masks that the first changed.
_STORE_ENVIRONMENT = bytes.fromhex("d937 d927 c3")
#: fninit; ret
_INITIALISE = bytes.fromhex("dbe3 c3")
_TAGS, _EMPTY = 2, 0xFFFF  # the word of the environment that has two bits for each register, and all of them empty


class X87Stack:
    """Reads and empties the stack. Only on x86-64: `available` says whether this machine is one."""

    available = platform.machine() in ("x86_64", "AMD64")

    def __init__(self) -> None:
        self._pages = [
            mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) for _ in "ab"
        ]
        self._store = self._function(self._pages[0], _STORE_ENVIRONMENT, ctypes.c_void_p)
        self._initialise = self._function(self._pages[1], _INITIALISE)
        self._environment = (ctypes.c_uint32 * 7)()

    def depth(self) -> int:
        """How many of the eight registers hold a value."""
        self._store(ctypes.addressof(self._environment))
        tags = self._environment[_TAGS] & _EMPTY
        return sum((tags >> (2 * i)) & 3 != 3 for i in range(8))

    def empty(self) -> None:
        """Empties the stack; the control word gets the value that Linux starts a thread with."""
        self._initialise()

    @staticmethod
    def _function(page: mmap.mmap, code: bytes, *arguments: type) -> Callable[..., None]:
        page.write(code)
        return ctypes.CFUNCTYPE(None, *arguments)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
