"""GFLOP/s of the CPU convolution kernels beside the core's FMA roof and beside torch eager.

    python bench/kernels_conv.py [--isa x86-64-v3,x86-64-v4] [--threads 1] [--only "3x3 14,1x1 7"] [--no-torch]

Weights are cold: every run takes the next of several copies that together exceed the last-level cache, as the layers
of a model do. Roof, kernel and torch are measured in turn within each row; the roof is that of the ISA's registers on
one core, times the threads. GFLOP/s count the operations of the plain convolution, so Winograd may pass the roof.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from kernel_cases import Libraries, arguments, print_table, repeats_for, row, take_turns
from kernels_gemm import COLD_BYTES, PANEL, floats, structure

SOURCE = Path(__file__).with_suffix(".cpp")
STRIDE_1 = ("winograd2", "winograd3", "winograd3taps", "winograd4")
#: matrices of weights
WINOGRAD = {"winograd2": 16, "winograd3": 25, "winograd3taps": 9, "winograd4": 36, "winograd2s2": 16}


@dataclass(frozen=True)
class Case:
    """A 2-d convolution. function: conv, depthwise or a form of Winograd's; add: a residual is added at its end."""

    name: str
    size: tuple[int, int]
    channels: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    pad: tuple[int, int] = (0, 0)
    groups: int = 1
    batch: int = 1
    add: bool = False
    function: str = "conv"

    @property
    def out_size(self) -> tuple[int, int]:
        height, width = ((self.size[i] + 2 * self.pad[i] - self.kernel[i]) // self.stride + 1 for i in (0, 1))
        return height, width

    @property
    def flops(self) -> float:
        (height, width), (in_c, out_c) = self.out_size, self.channels
        return 2.0 * self.batch * height * width * out_c * in_c // self.groups * self.kernel[0] * self.kernel[1]


def cases() -> Iterator[Case]:
    yield Case("first 7x7 s2 3-64", (224, 224), (3, 64), (7, 7), 2, (3, 3))
    yield Case("first 3x3 s2 3-32", (224, 224), (3, 32), (3, 3), 2, (1, 1))
    yield Case("patches 16x16 3-768", (224, 224), (3, 768), (16, 16), 16)
    for size, wide, narrow in ((56, 256, 64), (28, 512, 128), (14, 1024, 256), (7, 2048, 512)):  # ResNet's stages
        yield Case(f"1x1 {size} {narrow}-{wide} add", (size,) * 2, (narrow, wide), (1, 1), add=True)
        yield Case(f"1x1 {size} {wide}-{narrow}", (size,) * 2, (wide, narrow), (1, 1))
        plain = Case(f"3x3 {size} {narrow}-{narrow}", (size,) * 2, (narrow, narrow), (3, 3), 1, (1, 1))
        yield plain
        for function in STRIDE_1:
            yield replace(plain, name=f"{plain.name} {function}", function=function)
        if size > 7:
            yield Case(f"1x1 s2 {size} {wide}-{2 * wide}", (size,) * 2, (wide, 2 * wide), (1, 1), 2)
            strided = Case(
                f"3x3 s2 {size} {2 * narrow}-{2 * narrow}", (size,) * 2, (2 * narrow,) * 2, (3, 3), 2, (1, 1)
            )
            yield strided
            yield replace(strided, name=f"{strided.name} winograd2s2", function="winograd2s2")
    yield Case("1x1 112 16-96", (112, 112), (16, 96), (1, 1))
    yield Case("1x1 56 24-144", (56, 56), (24, 144), (1, 1))
    yield Case("1x1 56 144-24", (56, 56), (144, 24), (1, 1))
    yield Case("1d k3 80-384", (1, 3000), (80, 384), (1, 3), 1, (0, 1))
    yield Case("1d k3 s2 384-384", (1, 3000), (384, 384), (1, 3), 2, (0, 1))
    yield Case("3x3 32 128-128", (32, 32), (128, 128), (3, 3), 1, (1, 1))
    few = {"groups": 32, "function": "grouped"}
    yield Case("grouped 32 28 256", (28, 28), (256, 256), (3, 3), 1, (1, 1), **few)
    yield Case("grouped 32 56 128", (56, 56), (128, 128), (3, 3), 1, (1, 1), **few)
    yield Case("grouped 4 14 64", (14, 14), (64, 64), (3, 3), 1, (1, 1), groups=4)
    for size, channels, kernel, stride in (
        (112, 32, 3, 1), (112, 96, 3, 2), (56, 144, 3, 1), (28, 192, 3, 1), (14, 576, 3, 1), (7, 960, 3, 1),
        (14, 576, 5, 1), (14, 384, 7, 1),
    ):  # fmt: skip
        name = f"depthwise {kernel}x{kernel}{f' s{stride}' if stride > 1 else ''} {size} {channels}"
        window = ((kernel,) * 2, stride, (kernel // 2,) * 2)
        yield Case(name, (size,) * 2, (channels,) * 2, *window, channels, function="depthwise")


class Prepared:
    """A case with its memory, and the same work in torch."""

    def __init__(self, case: Case):
        self.case = case
        (in_h, in_w), (out_h, out_w), (kernel_h, kernel_w) = case.size, case.out_size, case.kernel
        in_c, out_c = case.channels
        group_in, group_out = in_c // case.groups, out_c // case.groups
        taps = WINOGRAD.get(case.function, kernel_h * kernel_w)
        padded = group_out if case.function in ("depthwise", "grouped") else -(-group_out // PANEL) * PANEL
        self.stride = -(-case.groups * padded * group_in * taps // PANEL) * PANEL
        self.copies = max(1, min(64, -(-COLD_BYTES // (4 * self.stride))))
        self.x, self.w = floats(case.batch * in_h * in_w * in_c), floats(self.copies * self.stride)
        self.bias, self.out = floats(out_c + PANEL), floats(case.batch * out_h * out_w * out_c)
        self.residual = floats(self.out.size)
        self.arguments = structure(
            case.batch, in_h, in_w, in_c, out_h, out_w, out_c, kernel_h, kernel_w, case.stride, case.stride, *case.pad,
            1, 1, case.groups, self.x, in_h * in_w * in_c, in_w * in_c, in_c, self.w, 1, 1, 1, 1, 0, 1, 0, 1,
        )  # fmt: skip
        self.image = torch.from_numpy(self.x).view(case.batch, in_h, in_w, in_c).permute(0, 3, 1, 2)
        self.residual_image = torch.from_numpy(self.residual).view(case.batch, out_h, out_w, out_c).permute(0, 3, 1, 2)
        count = out_c * group_in * kernel_h * kernel_w
        weights = [torch.from_numpy(self.w[i * self.stride :][:count]) for i in range(self.copies)]
        shape = (out_c, group_in, kernel_h, kernel_w)
        self.weights = [v.view(shape).contiguous(memory_format=torch.channels_last) for v in weights]
        self.add = torch.from_numpy(self.bias[:out_c])

    def run(self, library: ctypes.CDLL, host: ctypes.c_void_p, repeats: int) -> float:
        function = getattr(library, f"bench_{self.case.function}")
        function.restype = ctypes.c_double
        arrays = (self.out, self.bias, self.residual if self.case.add else None)
        pointers = [ctypes.c_void_p(v.ctypes.data if v is not None else None) for v in arrays]
        sizes = [ctypes.c_int(repeats), ctypes.c_int64(self.copies), ctypes.c_int64(self.stride)]
        return function(host, ctypes.byref(self.arguments), *pointers, *sizes)

    def eager(self, i: int) -> None:
        case = self.case
        weight = self.weights[i % self.copies]
        y = torch.conv2d(self.image, weight, self.add, case.stride, case.pad, 1, case.groups)
        if case.add:
            y += self.residual_image
        torch.relu_(y)


def measure(case: Case, libraries: Libraries, threads: int, seconds: float, eager: bool) -> str:
    prepared = Prepared(case)
    repeats = repeats_for(case.flops, threads, seconds)
    times = take_turns(libraries, threads, prepared.run, prepared.eager if eager else None, repeats)
    return row(case.name, case.flops, times, threads)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--torch", action=argparse.BooleanOptionalAction, default=True, help="torch eager beside it")
    options = parser.parse_args()
    rest = options.threads, options.seconds, options.torch
    print_table(options, SOURCE, cases(), lambda case, own: measure(case, own, *rest))


if __name__ == "__main__":
    main()
