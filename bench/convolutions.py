"""Convolutions of all forms beside eager torch: few channels and many, grouped, strided, dilated, transposed, 1 to 3-d.

    python bench/convolutions.py [--threads 1] [--only "2d 3->3,T3d"] [--worst 40] [--sample 200]

Each form is an entry point of a package, checked against torch when it is compiled; mycc and torch are timed in turn,
the least of the rounds. Its operand and result lie in planes, as torch has them: copies into another layout count.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mycc
import torch
from torch import nn
from views import Row, measure

AT_ONCE = 40  # forms of a package
PLAIN: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
#: of maps with few channels, and with many
LARGE = {1: (65536,), 2: (224, 224), 3: (8, 28, 28)}
SMALL = {1: (4096,), 2: (56, 56), 3: (8, 28, 28)}
#: inputs, outputs, groups
CHANNELS = (
    *((1, 1, 1), (1, 8, 1), (1, 64, 1), (3, 3, 1), (3, 3, 3), (3, 32, 1), (3, 64, 1), (6, 12, 6)),
    *((16, 16, 1), (16, 16, 16), (16, 32, 4), (20, 20, 20), (32, 1, 1), (32, 3, 1), (32, 64, 1)),
    *((64, 64, 64), (64, 64, 32), (64, 128, 64), (64, 64, 2), (60, 60, 1), (64, 64, 1)),
)
#: kernel, stride, dilation
WINDOWS = (
    *((1, 1, 1), (2, 2, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2), (4, 2, 1), (5, 1, 1), (5, 3, 1), (7, 2, 1), (9, 1, 1)),
)
FEW = 6  # channels of a large map
WIDEST_DEEP = 5  # kernel of three dimensions; of a transposed convolution


def forms() -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    for dimensions in PLAIN:
        for inputs, outputs, groups in CHANNELS:
            size = (LARGE if inputs <= FEW else SMALL)[dimensions]
            for kernel, stride, dilation in WINDOWS:
                if dimensions == 3 and kernel > WIDEST_DEEP:
                    continue
                pad = dilation * (kernel - 1) // 2
                name = f"{dimensions}d {inputs}->{outputs} g{groups} k{kernel} s{stride}"
                plain = PLAIN[dimensions](inputs, outputs, kernel, stride, pad, dilation, groups)
                yield f"{name} d{dilation}", plain, torch.randn(1, inputs, *size)
                if dilation == 1 and kernel <= WIDEST_DEEP:
                    back = TRANSPOSED[dimensions](inputs, outputs, kernel, stride, pad, 0, groups)
                    yield f"T{name}", back, torch.randn(1, inputs, *(max(8, n // stride) for n in size))


def timed(chosen: list[tuple[str, nn.Module, torch.Tensor]], threads: int, out: Path) -> list[Row]:
    entries = {f"form{i}": (module.eval(), (x,)) for i, (_, module, x) in enumerate(chosen)}
    mycc.compile(entries, out=out)
    model = mycc.load(out, threads=threads)
    return [measure(name, module, model.entry(f"form{i}"), x) for i, (name, module, x) in enumerate(chosen)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="forms whose name contains one of these, with commas between")
    parser.add_argument("--worst", type=int, default=1000, help="rows to show, the slowest beside torch first")
    parser.add_argument("--sample", type=int, default=0, help="so many of them, drawn at random; 0: all")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    chosen = [form for form in forms() if any(text in form[0] for text in options.only.split(","))]
    if options.sample:
        chosen = random.Random(0).sample(chosen, min(options.sample, len(chosen)))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for i in range(0, len(chosen), AT_ONCE):
            rows += timed(chosen[i : i + AT_ONCE], options.threads, Path(folder) / f"{i}.pkg")
    rows.sort(key=lambda row: row.eager / row.mycc)
    slower = sum(row.eager < row.mycc for row in rows)
    print(f"{len(rows)} forms, {slower} slower than eager torch; eager / mycc:")
    for row in rows[: options.worst]:
        print(row)


if __name__ == "__main__":
    main()
