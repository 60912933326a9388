"""The decisions of a MatrixPlan, a function each: planning.py has them as rows."""

from __future__ import annotations

from ...ir.plans.kernel import Kernel
from ...ir.plans.matrix import (
    AttentionBlocking,
    Blocking,
    ConvBlocking,
    GemmBlocking,
    MatrixPlan,
    Packing,
    RegisterTile,
)
from ...ir.structured import Attention, AttentionGradient, Conv, ConvChain, Gemm
from ...machine.cpu import CPUS, L1, L2, PANEL
from .hidden_keys import hides_keys

FLOAT = 4  # bytes

#: Half of the first cache holds a panel's block of k, and three quarters a group of them, beside rows of the left
#: operand; three quarters of the second cache hold the rows of a block. Up to four blocks of k are one pass.
GEMM_BLOCKING = GemmBlocking(
    depth=L1 // 2 // (PANEL * FLOAT), together=4, group_bytes=L1 * 3 // 4, block_bytes=L2 * 3 // 4
)
#: five eighths of the second cache hold weights, beside the pixels that they meet (depth and pixels are measured)
CONV_BLOCKING = ConvBlocking(depth=384, panel_bytes=L2 * 5 // 8, pixels=256)
#: the scores of a tile's rows stay in the first cache; a task's queries are six times as many as a block's (measured)
ATTENTION_BLOCKING = AttentionBlocking(key_block=384, chunk_floats=96 << 10)
#: convolutions that are cut by depth and pixels
BLOCKED = ("direct", "transposing")


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
    if not (plan.algorithm.startswith("gemm") and isinstance(node, Gemm)) or node.quantised is not None:
        return ()
    rows = node.dims[-2].extent.constant
    found = []
    for cpu in CPUS.values():
        height = min(rows or len(cpu.tile_panels), len(cpu.tile_panels))
        found.append(RegisterTile(cpu.name, height, cpu.tile_panels[max(height, 1) - 1] * PANEL))
    return tuple(found)


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


def in_registers(kernel: Kernel) -> bool:
    """Tiles of float32 sums add for themselves; those of Winograd's points and of integers are transformed first."""
    node = kernel.node
    if isinstance(node, Gemm):
        return node.acc.dtype == "f32" and node.a_dtype != "i8"
    return isinstance(node, Conv) and _plan(kernel).algorithm in ("direct", "depthwise")


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
    return tuple(_link(Kernel(link, MatrixPlan())) for link in kernel.node.links)


def _link(kernel: Kernel) -> MatrixPlan:
    named = Kernel(kernel.node, MatrixPlan(algorithm(kernel)))
    return MatrixPlan(algorithm(kernel), in_registers=in_registers(named))


def _plan(kernel: Kernel) -> MatrixPlan:
    assert isinstance(kernel.plan, MatrixPlan)
    return kernel.plan
