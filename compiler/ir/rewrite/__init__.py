"""Primitives: rewrites of loops that keep the values of a program. Passes of the schedule are made of them.

Each has a picture (before -> after) and a law, which says when the values stay. `tests/ir/test_rewrite.py` holds the
laws on random nodes with the evaluator.

    primitive                                what it changes                    where
    ---------------------------------------  ---------------------------------  --------------------------------------
    substitute, rename                       loop variables                     expressions.py
    split, fuse, flatten, reorder, reverse   the loops over the elements        loops.py
    unroll                                   a loop of few iterations           loops.py
    rfactor, unroll_reduction                a reduction                        reductions.py
    cache_read                               where an operand is read           staging.py
    compute_at                               nodes over the same rows           staging.py
    gemm_epilogue, conv_epilogue             the loops over a product's results  epilogues.py

The other primitives change how a kernel runs and never what it computes, so each of them is a field of its plan
(compiler/ir/plans/loop.py), with its picture and law in compiler/ir/plans/laws.py: vectorize (`vector`, `form`), unroll
and jam (`vertical`, `horizontal`), sliding_window (`windows`), pipeline (`pipeline`), prefetch (`prefetch`,
`row_prefetch`), store policy (`nontemporal`, `combined`).
"""

from .expressions import map_expressions, rename, substituted, with_loops
from .loops import flatten, flattened, fuse, reorder, reverse, split, unroll
from .reductions import rfactor, unroll_reduction
from .staging import cache_read, compute_at

__all__ = [
    "cache_read",
    "compute_at",
    "flatten",
    "flattened",
    "fuse",
    "map_expressions",
    "rename",
    "reorder",
    "reverse",
    "rfactor",
    "split",
    "substituted",
    "unroll",
    "unroll_reduction",
    "with_loops",
]
