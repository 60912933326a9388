"""guarded_run.py PACKAGE WORKERS...: runs a package of one entry point between guard pages, for each number of workers.

Every buffer, input, output and piece of scratch memory ends at a page that nobody may touch, and holds NaN before it is
written. Exits with 1 when the results are not, to the bit, those of the package as it is loaded; dies where a kernel
leaves its memory.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import sys

import mycc
import numpy as np
import torch
from mycc.compiler.verify.python_host import run_entry
from mycc.runtime.archive import Archive

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(size: int) -> np.ndarray:
    """So many bytes of NaN, which end, but for the alignment of 64, at a page that cannot be read or written."""
    used = -(-size // 64) * 64
    pages = -(-used // PAGE) * PAGE
    whole = np.frombuffer(mmap.mmap(-1, pages + 2 * PAGE), np.uint8)  # which the result keeps alive
    for guard in (whole.ctypes.data, whole.ctypes.data + PAGE + pages):
        if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = PAGE + pages - used
    memory = whole[begin : begin + size]
    memory[:] = 0xFF
    return memory


def main() -> int:
    faulthandler.enable()
    path, *workers = sys.argv[1:]
    archive = Archive(path)
    torch.manual_seed(1)
    inputs = [torch.randn(row["shape"]) for row in archive.manifest["entry_points"][0]["inputs"]]
    loaded = mycc.load(path)(*inputs)
    wanted = [np.asarray(y) for y in (loaded if isinstance(loaded, (tuple, list)) else [loaded])]
    sizes = [y.nbytes for y in wanted]
    target = archive.manifest["targets"][0]
    for count in map(int, workers):
        found = run_entry(archive, target, 0, inputs, [], sizes, workers=count, memory=guarded).outputs
        for y, bits in zip(wanted, found, strict=True):
            if y.tobytes() != bits.tobytes():
                print(f"{count} workers: other results than the loaded package's")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
