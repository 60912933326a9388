"""What the runtime gives to random operators with every call, as sizes."""

from __future__ import annotations

from .index import Size

#: the seed of the call's random numbers
CALL = Size("random_call", 0, None)
#: blocks of 256 threads that a GPU holds at a time; no GPU that mycc compiles for holds fewer than the least
BLOCKS = Size("random_blocks", 32, 1 << 16)
