"""Layouts of packed weights: the numbers in them that belong to the meaning of structured nodes (structured.py)."""

from __future__ import annotations

from collections.abc import Mapping

#: columns of a product, or outputs of a convolution, that lie side by side in a panel
PANEL = 16
#: bytes of a line of integer weights: four of each column of a panel
LINE = 4 * PANEL
#: outputs that lie side by side in the weights of a convolution in NCHW
NCHW_WIDTH = 4


def line_values(bits: int) -> int:
    """Values of k in a line of integer weights of so many bits.

    Of 8 bits they are bytes; of 4, the first four lie in the lower halves of the bytes, the others in the upper ones.
    Each is raised by half its range.
    """
    return 32 // bits


def fills_lines(group: int, k: int, bits: int) -> bool:
    """Whether groups of so many of k values are whole lines, as panels have them."""
    return group >= k or group % line_values(bits) == 0


#: values of a word of 16 bits, in weights of 4 bits for GPUs
PLANES = 4
#: words of a plane's runs that kernels of GPUs take, the widest first: a group is whole runs
RUNS = (64, 32, 16)


def run_of(group: int, k: int, integers: bool) -> int:
    """The run of weights of k values by groups, beside a left operand of integers or of floats; 0: none fits."""
    least = RUNS[-2] if integers else RUNS[-1]  # what the instructions of tensor cores take of k
    run = next((r for r in RUNS if group % r == 0 or group == k), 0)
    return run if run >= least else 0


def tap_pairs(height: int, width: int) -> tuple[tuple[int | None, int], ...]:
    """Pairs of taps that are multiplied as two words, in the order of their weights: numbers of taps, row by row.

    They lie one below the other; those of an odd last row side by side, where an odd last column stands alone.
    """
    above = ((row, column) for row in range(0, height - 1, 2) for column in range(width))
    pairs: list[tuple[int | None, int]] = [(r * width + c, (r + 1) * width + c) for r, c in above]
    if height % 2:
        first = (height - 1) * width
        pairs += [(first + c, first + c + 1) for c in range(0, width - 1, 2)]
        pairs += [(None, first + width - 1)] if width % 2 else []
    return tuple(pairs)


def row_words(k: int, run: int) -> int:
    """Words of 16 bits of a row of k weights of 4 bits for a GPU.

    A chunk is `run` words; word j of chunk c has the values k = (c * PLANES + p) * run + j, p = 0 .. 3, the first in
    its lowest bits, each raised by 8. So each plane (the same bits of all words of a chunk) is a run of k, and a kernel
    makes operands of a tensor core by masks and shifts of whole registers. Behind the last value are zeros.
    """
    return -(-k // (PLANES * run)) * run


def line_count(k: int, bits: int, group: int) -> int:
    """Lines of a panel; a group is whole lines."""
    run = group or k
    return k // max(run, 1) * -(-run // line_values(bits))


Matrix = tuple[tuple[float, ...], ...]


def _values(point: float, divisor: float) -> tuple[float, ...]:
    return (1 / divisor, point / divisor, point * point / divisor)


#: G of Winograd's convolutions, by the outputs of a tile and the stride: a kernel g becomes G g G^T. Rows are values
#: of g as a polynomial; see kernels/conv/winograd_forms.h and the law `winograd` of ir/laws.py.
WINOGRAD: Mapping[tuple[int, int], Matrix] = {
    (2, 1): (_values(0, 1), _values(1, 2), _values(-1, 2), (0, 0, 1)),
    (3, 1): (
        *(_values(p, d) for p in (3 / 8, -3 / 8, 5 / 4, -5 / 4) for d in [2 * p * (2 * p * p - 109 / 64)]),
        (0, 0, 1),
    ),
    (4, 1): (
        *(_values(p, d) for p, d in ((0, 1), (0.5**0.5, -1.5), (-(0.5**0.5), -1.5), (2**0.5, 6), (-(2**0.5), 6))),
        (0, 0, 1),
    ),
    (2, 2): ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1)),
}


def winograd_sides(outputs: int, stride: int, taps: int) -> list[Matrix]:
    """G for each three taps along a side of a kernel; a part that lacks its third tap has no row of it."""
    whole = WINOGRAD[outputs, stride]
    short = tuple(row for row in whole if row != (0, 0, 1))
    return [whole if 3 * i + 3 <= taps else short for i in range(-(-taps // 3))]
