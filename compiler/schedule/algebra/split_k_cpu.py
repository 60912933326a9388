"""Split-K on a CPU: a product with few rows and columns becomes a sum over parts of a long k, which threads share.

    y[m, n] = sum over k:K of a[m, k] * b[k, n] + bias[n]

    p[s, m, n] = sum over k:K/S of a[m, s*K/S + k] * b[s*K/S + k, n]
    y[m, n] = p[0, m, n] + p[1, m, n] + ... + bias[n]

The sums are equal by the law `split_k` of ir/laws.py. No task of a product gets a part of k (kernels/gemm/block.h), and
few columns are one task: a head of ten classes behind a flattened image ran on one thread. S follows from the sizes:
the bits are the same at any number of threads. Measured in docs/decisions/0104-long-products-in-parts.md.
"""

from __future__ import annotations

import math

from ...ir.layouts import PANEL
from ...ir.structured import Gemm
from ...machine.cpu_loops import SPLITS, TASKS
from ..graph import NodeGraph
from .split_k_gpu import split_product

#: rows and columns of a task: of weights in panels, and of operands as they lie


def split_k(graph: NodeGraph) -> None:
    """Rewrites the products that are too few tasks."""
    for node in list(graph.nodes):
        if isinstance(node, Gemm) and (parts := _parts(node)) > 1:
            graph.replace_by(node, split_product(node, parts))


def _parts(node: Gemm) -> int:
    """How many parts a product is split into; 1 for one that is not. A batch and rows that are not known may be one."""
    *batch, rows = (v.extent.constant or 1 for v in node.dims[:-1])
    columns, k = node.dims[-1].extent.constant, node.k.constant
    if node.quantised is not None:
        return 1
    if len(node.dims) > (2 if node.packed else 3) or len(node.stores) != 1 or columns is None or k is None:
        return 1
    wide = PANEL if node.packed else SPLITS.task_columns
    tasks = math.prod(batch) * math.ceil(rows / SPLITS.task_rows) * math.ceil(columns / wide)
    worth = min(k // SPLITS.depth, max(rows, SPLITS.read_rows) * columns * k // SPLITS.work)
    most = min(worth, TASKS.products // max(tasks, 1))
    return max((s for s in range(1, most + 1) if k % (s * PANEL) == 0), default=1)
