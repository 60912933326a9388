"""GFLOP/s of chains of convolutions (expand, depthwise, project) beside the core's FMA roof and beside torch eager.

    python bench/kernels_chain.py [--isa x86-64-v3,x86-64-v4] [--threads 1] [--only "112,56 24-144"]

The chains are MobileNetV2's: each is one kernel, whose maps in between stay in a cache. Roof, kernel and torch are
measured in turn within each row. The kernel's results are compared with torch's.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from kernel_cases import Libraries, arguments, print_table, repeats_for, row, take_turns
from kernels_gemm import PANEL, floats, structure
from mycc.compiler.lower.core.constants import ConvPanels
from torch.nn.functional import conv2d

SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True)
class Case:
    """in_c -> middle by a 1x1 (or, of images, by a 3x3 with stride 2), a depthwise 3x3, middle -> out_c by a 1x1.

    size: of the input; stride: of the depthwise convolution; add: the input is added at the end.
    """

    size: int
    in_c: int
    middle: int
    out_c: int
    stride: int = 1
    image: bool = False
    add: bool = False

    @property
    def name(self) -> str:
        return f"{self.size} {self.in_c}-{self.middle}-{self.out_c}{' s2' * (self.stride == 2)}{' add' * self.add}"

    @property
    def map_size(self) -> int:
        return self.size // 2 if self.image else self.size

    @property
    def out_size(self) -> int:
        return self.map_size // self.stride

    @property
    def flops(self) -> float:
        expand = self.map_size**2 * self.in_c * (9 if self.image else 1)
        return 2.0 * self.middle * (expand + self.out_size**2 * (9 + self.out_c))


CASES = [
    Case(224, 3, 32, 16, image=True),
    Case(112, 16, 96, 24, stride=2),
    Case(56, 24, 144, 24, add=True),
    Case(56, 24, 144, 32, stride=2),
    Case(28, 32, 192, 32, add=True),
    Case(28, 32, 192, 64, stride=2),
    Case(14, 64, 384, 64, add=True),
    Case(14, 96, 576, 96, add=True),
]


def panels(weight: torch.Tensor) -> np.ndarray:
    """As a package has the weights of a convolution."""
    values = floats(ConvPanels(1).elements(tuple(weight.shape)))
    values[:] = ConvPanels(1).pack(weight).numpy()
    return values


class Prepared:
    """A case with its memory, and the same work in torch."""

    def __init__(self, case: Case):
        self.case = case
        torch.manual_seed(0)
        kernel = 3 if case.image else 1
        shapes = ((case.middle, case.in_c, kernel, kernel), (case.middle, 1, 3, 3), (case.out_c, case.middle, 1, 1))
        self.weights = [torch.randn(shape) / (shape[1] * shape[2] * shape[3]) ** 0.5 for shape in shapes]
        self.biases = [torch.randn(shape[0] + PANEL) for shape in shapes]
        self.image = torch.randn(1, case.in_c, case.size, case.size)
        if not case.image:
            self.image = self.image.contiguous(memory_format=torch.channels_last)
        depthwise = self.weights[1].permute(2, 3, 1, 0).contiguous().numpy()
        packed = [panels(self.weights[0]), depthwise, panels(self.weights[2])]
        self.out = floats(case.out_size**2 * case.out_c)
        sizes = (case.size, case.map_size, case.out_size, case.out_size)
        channels = (case.in_c, case.middle, case.middle, case.out_c)
        strides = (2 if case.image else 1, case.stride, 1)
        convolutions = [
            self._convolution(sizes[i : i + 2], channels[i : i + 2], shapes[i][2], strides[i], packed[i], i == 1)
            for i in range(3)
        ]
        self.memory = (packed, convolutions)
        self.convolutions = (ctypes.c_void_p * 3)(*(ctypes.addressof(c) for c in convolutions))
        self.bias_places = (ctypes.c_void_p * 3)(*(b.data_ptr() for b in self.biases))

    def _convolution(
        self,
        sizes: tuple[int, ...],
        channels: tuple[int, ...],
        kernel: int,
        stride: int,
        weight: np.ndarray,
        depthwise: bool,
    ) -> ctypes.Structure:
        """A ConvArgs; the padding in front is what torch's is for these sizes, behind it follows."""
        size, in_c = sizes[0], channels[0]
        planes = self.case.image and kernel == 3 and not depthwise
        x_w = 1 if planes else in_c
        return structure(
            1, size, size, in_c, sizes[1], sizes[1], channels[1], kernel, kernel, stride, stride,
            kernel // 2, kernel // 2, 1, 1, in_c if depthwise else 1,
            self.image.data_ptr(), size * size * in_c, size * x_w, x_w, weight, 1, 1, 1, 1, 0, 1, 0,
            size * size if planes else 1,
        )  # fmt: skip

    def run(self, library: ctypes.CDLL, host: ctypes.c_void_p, repeats: int) -> float:
        library.bench_chain.restype = ctypes.c_double
        residual = ctypes.c_void_p(self.image.data_ptr() if self.case.add else None)
        out = ctypes.c_void_p(self.out.ctypes.data)
        return library.bench_chain(host, self.convolutions, self.bias_places, out, residual, ctypes.c_int(repeats))

    def eager(self, _: int) -> torch.Tensor:
        case = self.case
        biases = [b[:-PANEL] for b in self.biases]
        expand, pad = (2, 1) if case.image else (1, 0)
        y = conv2d(self.image, self.weights[0], biases[0], expand, pad).clamp_(0, 6)
        y = conv2d(y, self.weights[1], biases[1], case.stride, 1, 1, case.middle).clamp_(0, 6)
        y = conv2d(y, self.weights[2], biases[2])
        return y + self.image if case.add else y


def measure(case: Case, libraries: Libraries, threads: int, seconds: float) -> str:
    """A row of the table. The kernel's last results are compared with torch's."""
    prepared = Prepared(case)
    times = take_turns(libraries, threads, prepared.run, prepared.eager, repeats_for(case.flops, threads, seconds))
    own = torch.from_numpy(prepared.out).view(1, case.out_size, case.out_size, case.out_c).permute(0, 3, 1, 2)
    torch.testing.assert_close(own, prepared.eager(0), rtol=1e-4, atol=1e-4)
    return row(case.name, case.flops, times, threads)


def main() -> None:
    options = arguments(__doc__).parse_args()
    print_table(options, SOURCE, CASES, lambda case, own: measure(case, own, options.threads, options.seconds))


if __name__ == "__main__":
    main()
