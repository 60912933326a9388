"""The decisions of a MatrixPlan, a function each: planning.py has them as rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir.buffers import Buffer
from ...ir.nodes import Store
from ...ir.plans.kernel import Kernel
from ...ir.plans.matrix import (
    AttentionBlocking,
    Blocking,
    ConvBlocking,
    EpiloguePlan,
    GemmBlocking,
    MatrixPlan,
    Packing,
    RegisterTile,
)
from ...ir.rewrite.epilogues import conv_epilogue, gemm_epilogue, link_stores
from ...ir.structured import Attention, AttentionGradient, Conv, ConvChain, Gemm
from ...machine.cpu import CPUS, PANEL
from ...machine.cpu_products import BLOCKING, MATRIX_TILES
from .epilogue_plan import epilogue_plan
from .hidden_keys import hides_keys

GEMM_BLOCKING = GemmBlocking(BLOCKING.depth, BLOCKING.together, BLOCKING.group_bytes, BLOCKING.block_bytes)
CONV_BLOCKING = ConvBlocking(BLOCKING.conv_depth, BLOCKING.conv_bytes, BLOCKING.pixels)
ATTENTION_BLOCKING = AttentionBlocking(BLOCKING.keys, BLOCKING.queries)
#: convolutions that are cut by depth and pixels
BLOCKED = ("direct", "transposing")
#: convolutions whose tiles hold plain sums
SUMMING = ("direct", "depthwise")
#: what tasks have parts of, the outermost axis first: of algorithms that are no products, and of convolutions
TASKS = {
    "transposing": ("pixels", "groups", "channels"),
    "direct": ("pixels", "groups", "channels"),
    "depthwise": ("images", "rows", "channels"),
    "nchw": ("images", "groups", "rows", "columns"),
    "chain": ("images", "rows"),
    "attention": ("batch", "key heads", "queries"),
    "attention-gradient": ("batch", "key heads", "queries"),
}
CONV_TASKS = ("pixels", "channels")


def algorithm(kernel: Kernel) -> str:
    """Which loops compute the node. Layouts of weights depend on it, so lowering has chosen between those that differ
    in them."""
    match kernel.node:
        case Gemm() as node if node.quantised is not None:
            return "gemm-integer" if node.a_dtype == "i8" else "gemm-mixed"
        case Gemm() as node:
            return "gemm-glu" if node.also else "gemm"
        case Conv() as node:
            return "depthwise" if node.depthwise and node.algorithm == "direct" else node.algorithm
        case ConvChain():
            return "chain"
        case AttentionGradient():
            return "attention-gradient"
    return "attention"


def packing(kernel: Kernel) -> Packing:
    """Weights are packed when the package is made; operands that a run computes, in it."""
    node = kernel.node
    computed = isinstance(node, Attention | AttentionGradient) or (
        isinstance(node, Gemm) and not node.packed and node.quantised is None
    )
    return Packing.RUN_TIME if computed else Packing.COMPILE_TIME


def tiles(kernel: Kernel) -> tuple[RegisterTile, ...]:
    """The largest tile of each level: no taller than the result where its rows are known."""
    node, plan = kernel.node, _plan(kernel)
    if not (plan.algorithm.startswith("gemm") and isinstance(node, Gemm)):
        return ()
    rows = node.dims[-2].extent.constant
    if (how := node.quantised) is not None:
        # sums of groups are scaled one by one, and weights of four bits spread first
        whole = plan.algorithm == "gemm-integer" and how.bits == 8 and not how.group
        return _matrix_tiles(rows, MATRIX_TILES.from_rows) if whole else ()
    found: list[RegisterTile] = []
    if node.rounded == MATRIX_TILES.floats:
        found += _matrix_tiles(rows, MATRIX_TILES.from_float_rows)
    for cpu in CPUS.values():
        height = min(rows or len(cpu.tile_panels), len(cpu.tile_panels))
        found.append(RegisterTile(cpu.name, height, cpu.tile_panels[max(height, 1) - 1] * PANEL))
    return tuple(found)


def _matrix_tiles(rows: int | None, from_rows: int) -> tuple[RegisterTile, ...]:
    """Those of instructions that multiply whole tiles, of a result that may have so many rows."""
    own = MATRIX_TILES
    return (RegisterTile(own.level, own.rows, own.columns, from_rows),) if rows is None or rows >= from_rows else ()


def blocking(kernel: Kernel) -> Blocking | None:
    """What the loops around the register tiles are cut by."""
    match _plan(kernel).algorithm:
        case "gemm" | "gemm-glu":
            return GEMM_BLOCKING
        case "attention":
            return ATTENTION_BLOCKING
        case name if name in BLOCKED:
            return CONV_BLOCKING
    return None


def streamed(kernel: Kernel) -> bool:
    """A single row reads its weights once; so does a result of a number of rows that may be one."""
    node, plan = kernel.node, _plan(kernel)
    floats = isinstance(node, Gemm) and node.quantised is None and plan.packing is Packing.COMPILE_TIME
    return floats and node.dims[-2].extent.constant in (None, 1)


def epilogue(kernel: Kernel) -> EpiloguePlan:
    """Tiles of float32 sums add for themselves; those of Winograd's points and of integers are transformed first."""
    match kernel.node:
        case Gemm() as node:
            floats = node.acc.dtype == "f32" and node.a_dtype != "i8"
            return epilogue_plan(gemm_epilogue(node), floats, joined=bool(node.also))
        case Conv() as node:
            return _conv_epilogue(node, node.stores, _plan(kernel).algorithm)
    return EpiloguePlan()


def _conv_epilogue(node: Conv, stores: Sequence[Store], by: str, own: Collection[Buffer] = ()) -> EpiloguePlan:
    return epilogue_plan(conv_epilogue(node, stores), by in SUMMING, own=own)


def tasks(kernel: Kernel) -> tuple[str, ...]:
    """What threads share, as the kernel cuts it: how much of each axis a task has follows from the number of threads
    (kernels/gemm/block.h, kernels/conv/plan.h). No task has a part of k: its sums would depend on that number."""
    plan = _plan(kernel)
    if plan.algorithm.startswith("gemm"):
        batch = ("batch",) if len(kernel.node.dims) > 2 else ()
        return (*batch, "columns", "rows")
    return TASKS.get(plan.algorithm, CONV_TASKS)


def skips_hidden(kernel: Kernel) -> bool:
    """Asking for each block of keys whether a mask hides it pays where there are several blocks."""
    node = kernel.node
    if not isinstance(node, Attention) or node.score is None:
        return False
    keys = node.keys.constant
    return (keys is None or keys > ATTENTION_BLOCKING.key_block) and hides_keys(node.score)


def links(kernel: Kernel) -> tuple[MatrixPlan, ...]:
    """The plans of a chain's convolutions, whose bands of rows the chain cuts."""
    if not isinstance(kernel.node, ConvChain):
        return ()
    return tuple(_link(kernel.node, i) for i in range(len(kernel.node.links)))


def _link(chain: ConvChain, i: int) -> MatrixPlan:
    by = algorithm(Kernel(chain.links[i]))
    return MatrixPlan(by, epilogue=_conv_epilogue(chain.links[i], link_stores(chain, i), by, chain.locals))


def _plan(kernel: Kernel) -> MatrixPlan:
    assert isinstance(kernel.plan, MatrixPlan)
    return kernel.plan
