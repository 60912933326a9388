"""The table of routines: what a Routine node may call, and the header of kernels/ that has it.

A routine handles one block of dense memory:

    function(host, worker, outputs..., inputs..., sizes...)

Scratch comes from row_scratch(host, worker, ...). The operators that use it are in the family's own file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir.index import ZERO, Index, as_index, product
from ...ir.routines import Blocks, Routine
from .builder import Builder
from .tensor import Shape, Tensor, dense_strides


@dataclass(frozen=True)
class RoutineRow:
    """One routine: its C++ function (a template over the element type) and the header that it is in."""

    function: str
    header: str


ROUTINES: Mapping[str, RoutineRow] = {
    "sort": RoutineRow("sort_row", "sort/sort.h"),
    "mode": RoutineRow("mode_row", "sort/sort.h"),
    "search": RoutineRow("search_block", "sort/search.h"),
    "lu": RoutineRow("lu_block", "linalg/linalg.h"),
    "pivot_order": RoutineRow("pivot_order_block", "linalg/linalg.h"),
    "triangular": RoutineRow("triangular_block", "linalg/linalg.h"),
    "cholesky": RoutineRow("cholesky_block", "linalg/linalg.h"),
    "qr": RoutineRow("qr_block", "linalg/linalg.h"),
    "reflectors": RoutineRow("reflectors_block", "linalg/linalg.h"),
    "eigh": RoutineRow("eigh_block", "linalg/linalg.h"),
    "svd": RoutineRow("svd_block", "linalg/linalg.h"),
    "eig": RoutineRow("eig_block", "linalg/linalg.h"),
    "ldl": RoutineRow("ldl_block", "linalg/linalg.h"),
    "ldl_solve": RoutineRow("ldl_solve_block", "linalg/linalg.h"),
    "matrix_exp": RoutineRow("matrix_exp_block", "linalg/linalg.h"),
    "mersenne_seed": RoutineRow("mersenne_seed", "random/mersenne.h"),
    "mersenne_words": RoutineRow("mersenne_words", "random/mersenne.h"),
    "mersenne_normals": RoutineRow("mersenne_normals", "random/mersenne.h"),
    "mersenne_fill": RoutineRow("mersenne_fill", "random/mersenne.h"),
    "mersenne_permutation": RoutineRow("mersenne_permutation", "random/mersenne.h"),
    "weighted_places": RoutineRow("weighted_places", "random/mersenne.h"),
    "nonzero_indices": RoutineRow("nonzero_indices", "loops/positions.h"),
    "true_count": RoutineRow("true_count", "loops/positions.h"),
    "true_elements": RoutineRow("true_elements", "loops/positions.h"),
    "repeats_total": RoutineRow("repeats_total", "loops/positions.h"),
    "repeated_places": RoutineRow("repeated_places", "loops/positions.h"),
    "row_order": RoutineRow("row_order", "loops/positions.h"),
    "nms": RoutineRow("nms_block", "vision/vision.h"),
    "roi_align": RoutineRow("roi_align_block", "vision/vision.h"),
    "roi_pool": RoutineRow("roi_pool_block", "vision/vision.h"),
    "ctc": RoutineRow("ctc_block", "linalg/sequences.h"),
    "recursive_filter": RoutineRow("recursive_filter", "linalg/sequences.h"),
    **{
        f"complex_{name}": RoutineRow(f"complex_{name}_block", "linalg/linalg.h")
        for name in ("lu", "triangular", "cholesky", "qr", "reflectors", "eigh", "svd", "eig", "ldl", "ldl_solve")
    },
    "fft": RoutineRow("fft_row", "linalg/fft.h"),
    "rfft": RoutineRow("rfft_row", "linalg/fft.h"),
    "irfft": RoutineRow("irfft_row", "linalg/fft.h"),
    "fft_table": RoutineRow("fft_table_block", "linalg/fft.h"),
}


def call_routine(
    builder: Builder,
    name: str,
    batch: Shape,
    inputs: Sequence[tuple[Tensor, int]],
    outputs: Sequence[tuple[Shape, str]],
    sizes: Sequence[Index | int],
) -> list[Tensor]:
    """The results of a routine for every element of `batch`.

    inputs: dense row-major tensors, each with the number of its last dimensions that make up a block (those in front
    are `batch`; a tensor with none in front is shared by all). outputs: shape of a block and dtype of each result; the
    results have the batch in front.
    """
    blocks = []
    for t, rank in inputs:
        dense = builder.dense(t)
        assert dense.strided is not None
        stride = product(t.shape[t.rank - rank :]) if t.rank > rank else ZERO
        blocks.append(Blocks(dense.strided.buffer, stride))
    results = [builder.temp((*batch, *shape), dtype) for shape, dtype in outputs]
    ends = []
    for t, (shape, _) in zip(results, outputs, strict=True):
        assert t.strided is not None
        assert t.strided.strides == dense_strides(t.shape)
        ends.append(Blocks(t.strided.buffer, product(shape)))
    count = product(batch)
    numbers = tuple(as_index(s) for s in sizes)
    builder.add(Routine((), (), builder.origin, name, count, tuple(blocks), tuple(ends), numbers))
    return results
