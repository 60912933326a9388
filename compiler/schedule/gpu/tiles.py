"""Tiles of the matrix kernels: what a choice consists of, and how it is made.

A choice comes from the measurements that ship with mycc (measured.py) when they have the shape's class, else from a
model: how many rounds the multiprocessors need for all tiles, and how long the programs of a round take.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir.dtypes import DTYPES
from ...ir.expr import Call, Load
from ...ir.index import ONE, Index, Size
from ...ir.plans.tiles import AttentionTile, GemmTile
from ...ir.structured import Attention, Conv, Gemm
from ...machine.gpu import FLOAT32_PRODUCTS, LINE, REGISTERS, TENSOR_CORE_TILE, WARP, Device


@dataclass(frozen=True)
class Shape:
    """A matrix product in numbers: rows, columns, depth, batches, bytes of an element; typical where dynamic."""

    m: int
    n: int
    k: int
    batch: int
    size: int
    fixed_k: bool = True


def typical(index: Index, at: float = 0.5) -> int:
    """A size within its range; at: 0 is the least, 1 the largest, on the scale of factors."""
    values: dict[str, int] = {}
    for atom in index.atoms():
        if isinstance(atom, Size):
            low = max(atom.lo, 1)
            high = atom.hi if atom.hi is not None else low * 4096
            values[atom.name] = max(low, round(low * (high / low) ** at))
    return max(index.evaluate(values), 1)


def gemm_shape(node: Gemm, at: float = 0.5) -> Shape:
    """The sizes that the tiles of a matrix product are chosen by; both halves of a GLU count as columns.
    at: where in their range dynamic sizes are taken, from 0 to 1."""
    *batch, m, n = node.dims
    batches = math.prod(typical(v.extent, at) for v in batch)
    size = DTYPES[node.b.buffer.dtype].size
    columns = typical(n.extent, at) * (1 + len(node.also))
    return Shape(typical(m.extent, at), columns, typical(node.k, at), batches, size, node.k.constant is not None)


def conv_shape(node: Conv, at: float = 0.5) -> Shape:
    """The product that a convolution is on a GPU: rows are output pixels, columns channels, depth taps times inputs.
    at: where in their range dynamic sizes are taken, from 0 to 1."""
    *pixels, c = node.dims
    groups = node.window.groups
    depth = math.prod(node.window.kernel) * typical(node.in_shape[-1]) // groups
    rows = math.prod(typical(v.extent, at) for v in pixels)
    return Shape(rows, typical(c.extent) // groups, depth, groups, DTYPES[node.w.dtype].size)


def shapes(node: Gemm | Conv) -> tuple[Shape, ...]:
    """The shape of a node; of a dynamic one, several within its range: its tile has to do for all."""
    found = (gemm_shape(node, at) if isinstance(node, Gemm) else conv_shape(node, at) for at in (0.5, 0.75, 1.0))
    return tuple(dict.fromkeys(found))


# products ------------------------------------------------------------------------------------------------------------
#: functions of an epilogue that need many registers beside the sums
FUNCTIONS = frozenset("exp expm1 log log1p tanh sigmoid silu erf erfc gelu_erf gelu_tanh pow sin cos tan".split())


def gemm_tile(node: Gemm, device: Device, shape: Shape | None = None) -> GemmTile:
    """The tile of a matrix product on a device. shape: of a range of sizes that it is for; None: it is for all."""
    of_shapes = shapes(node) if shape is None else (shape,)
    return with_room(_gemm_tile(node, device, of_shapes), node, device)


def with_room(tile: GemmTile, node: Gemm, device: Device) -> GemmTile:
    """The tile with no more stages than shared memory holds of an operand that is computed from what lies there."""
    if node.prologue is None:
        return tile
    return replace(tile, stages=max(2, min(tile.stages, device.operands_room // stage_bytes(node, tile))))


def stage_bytes(node: Gemm, tile: GemmTile) -> int:
    """Shared memory of one step's operands, as they are loaded."""
    return (tile.m * operand_bytes(node) + tile.n * DTYPES[node.b.buffer.dtype].size) * tile.k


def operand_bytes(node: Gemm) -> int:
    """Bytes that a product loads for an element of its left operand; what rows or columns share does not count."""
    size = DTYPES[node.a.buffer.dtype].size
    if node.prologue is None:
        return size
    moving = {node.dims[-2], node.prologue.depth}
    return size + sum(DTYPES[ld.dtype].size for ld in node.prologue.value.loads if moving <= ld.own_vars())


def _gemm_tile(node: Gemm, device: Device, of_shapes: tuple[Shape, ...]) -> GemmTile:
    shape, dtype = of_shapes[0], node.b.buffer.dtype
    if node.also:
        return _pair_tile(node, of_shapes, dtype, device)
    known = _measured_tile(node, of_shapes, device, is_heavy(node))
    if known is not None and not leaves_registers(known, device, needed_tiles(node)):
        known = _in_halves(node, known, device)
    if known is not None:
        return known
    if shape.m == 1 and node.dims[-2].extent == ONE:
        return vector_tile(shape, device)
    walked = _walking_tile(node, of_shapes, device)
    return walked or fastest(of_shapes, dtype, device, needed_tiles(node, True))


def leaves_registers(tile: GemmTile, device: Device, tiles: int = 1) -> bool:
    """Whether the sums of a tile leave registers for its epilogue. tiles: that it needs as many registers for as there
    are sums, see needed_tiles(); 0: it has room in any tile that was measured, or that the model may choose."""
    if tiles == 0:
        return True
    facts, threads = device.products, WARP * tile.warps * (2 if tile.specialize else 1)
    sums = tile.m * tile.n
    finished = sums // 2 if tile.halves else sums
    if tiles == 1 and tile.halves:
        return True
    return finished <= facts.heavy and sums + tiles * finished <= 2 * facts.heavy_sums * threads


def needed_tiles(node: Gemm | Conv, of_model: bool = False) -> int:
    """How many tiles of registers an epilogue needs beside the sums: for functions, or for each tensor that it reads.
    One tensor that is read is no such tile for what was measured; of_model: the model counts it."""
    read = read_tiles(node)
    return max(read, 1) if is_heavy(node) or read > (0 if of_model else 1) else 0


def _in_halves(node: Gemm, tile: GemmTile, device: Device) -> GemmTile | None:
    """The tile finished in halves, where that can be."""
    from .fit import misfit

    halved = replace(tile, halves=True)
    fits = tile.descriptors and not misfit(node, halved) and leaves_registers(halved, device, needed_tiles(node))
    return halved if fits else None


def _walking_tile(node: Gemm, of_shapes: tuple[Shape, ...], device: Device) -> GemmTile | None:
    """The tile of programs that walk over many tiles; None where there are few, or no descriptors."""
    from .fit import misfit

    shape, facts = of_shapes[0], device.products
    walks = dict(facts.walks)
    enough = shape.m * shape.n >= device.sms * facts.walk_tile
    deep = node.row_strides[1] == ONE  # else the gradient of a weight, whose rows are no tokens
    enough = enough and shape.k >= facts.walk_depth and (shape.m >= facts.walk_rows or not deep)
    if not device.descriptors or not enough or len(of_shapes) > 1 or DTYPES[node.b.buffer.dtype].size != 2:
        return None

    def time(tile: GemmTile) -> float:
        start, step = walks[tile]
        rounds = -(-(-(-shape.m // tile.m) * -(-shape.n // tile.n)) // device.sms)
        return rounds * (start + step * -(-shape.k // tile.k))

    needed = needed_tiles(node)
    fitting = [t for t in walks if not misfit(node, t) and leaves_registers(t, device, needed)]
    return min(fitting, key=time, default=None)


def _measured_tile(node: Gemm, of_shapes: tuple[Shape, ...], device: Device, heavy: bool = False) -> GemmTile | None:
    from .fit import misfit
    from .measured import measured_gemm

    if len(of_shapes) > 1:
        return None  # measured at one size
    known = measured_gemm(of_shapes[0], node.b.buffer.dtype, device, heavy=heavy)
    return None if known is None or misfit(replace(node, also=()), known) else known


def _pair_tile(node: Gemm, of_shapes: tuple[Shape, ...], dtype: str, device: Device) -> GemmTile:
    """Several products in one tile: that of one product with all their columns, which they share."""
    from .fit import misfit
    from .measured import measured_gemm

    if len(of_shapes) == 1:
        known = measured_gemm(of_shapes[0], dtype, device, 1 + len(node.also), True)
        if known is not None and not misfit(node, known):
            return known
    known = _measured_tile(node, of_shapes, device)
    if known is None or known.split > 1 or known.vector or len(known.parts) > 1:
        known = fastest(of_shapes, dtype, device, splits=(1,))
    width = known.parts[0] // (1 << len(node.also).bit_length())
    return replace(known, n=max(TENSOR_CORE_TILE, width), flatten=False, halves=False)


def is_heavy(node: Gemm | Conv) -> bool:
    """Whether the epilogue has functions that need many registers beside the sums."""
    calls = (e.op for s in node.stores for e in s.value.walk() if isinstance(e, Call))
    return any(op in FUNCTIONS for op in calls)


def read_tiles(node: Gemm | Conv) -> int:
    """How many tensors with the rows and columns of the result the epilogue reads, as a residual."""
    *rows, column = node.dims
    loads = {e for s in node.stores for e in s.value.walk() if isinstance(e, Load)}
    every = (frozenset(e.index.atoms()) for e in loads)
    return sum(column in atoms and any(row in atoms for row in rows) for atoms in every)


def expected_time(shape: Shape, dtype: str, device: Device, unsplit: bool = False) -> float:
    """Microseconds that a product takes with its best tile: measured, else by the model."""
    from .measured import measured_time

    known = measured_time(shape, dtype, device)
    if known is not None:
        return known
    tiles = candidates(shape, dtype, device, (1,) if unsplit else None)
    return min(estimate(shape, dtype, t, device) for t in tiles)


def conv_tile(node: Conv, device: Device) -> GemmTile:
    """The tile of a convolution on a device."""
    from .measured import measured_conv

    shape = conv_shape(node)
    if node.depthwise:
        return depthwise_tile(node, device)
    known = measured_conv(shape, node.w.dtype, device) if len(shapes(node)) == 1 else None
    if known is not None and leaves_registers(known, device, needed_tiles(node)):
        return known
    return fastest(shapes(node), node.w.dtype, device, needed_tiles(node, True))


def fastest(
    of_shapes: tuple[Shape, ...], dtype: str, device: Device, needed: int = 0, splits: tuple[int, ...] | None = None
) -> GemmTile:
    """The tile that the model of waves finds fastest over all shapes; one accumulator, no descriptors.

    needed: tiles of registers of the epilogue, see needed_tiles(); splits: those that are allowed; None: all of the
    device.
    """
    tiles = dict.fromkeys(t for shape in of_shapes for t in candidates(shape, dtype, device, splits))

    def cost(tile: GemmTile) -> tuple[float, int, int]:
        times = [math.log(estimate(shape, dtype, tile, device)) for shape in of_shapes]
        return sum(times), tile.m * tile.n, tile.split

    most = max(s.m * s.n * s.batch for s in of_shapes) * 4
    allowed = [t for t in tiles if t.split == 1 or most * t.split <= device.products.shared_bytes]
    fitting = [t for t in allowed if leaves_registers(t, device, needed)]
    return min(fitting or [t for t in allowed if leaves_registers(t, device)], key=cost)


def candidates(shape: Shape, dtype: str, device: Device, splits: tuple[int, ...] | None = None) -> Iterator[GemmTile]:
    """Tiles that are worth a look for a shape."""
    facts, least = device.products, TENSOR_CORE_TILE
    half, splits = uses_tensor_cores(dtype, device), splits or facts.splits
    for m, n in dict(device.half_tiles if half else device.float_tiles):
        wide = dtype == "f32" and m * n > facts.most_float
        if (m > least and m >= 2 * shape.m) or (n > 2 * least and n >= 2 * shape.n) or wide:
            continue
        for k, split in itertools.product(steps(m, n, shape, half, device), splits):
            if split == 1 or (shape.fixed_k and shape.k >= split * k * 2):
                stages = max(2, min(4 if half else 3, device.operands_room // ((m + n) * k * shape.size)))
                yield GemmTile(
                    m, n, k, 8 if m * n >= facts.many_warps * (2 if shape.size == 2 else 1) else 4, stages, split
                )


def uses_tensor_cores(dtype: str, device: Device) -> bool:
    return dtype != "f32" or device.float32 != "ieee"


def steps(m: int, n: int, shape: Shape, half: bool, device: Device) -> tuple[int, ...]:
    """Elements of k that a program takes at a time: a line of each row or two, less where k is short."""
    short = max(TENSOR_CORE_TILE, 1 << max(shape.k - 1, 0).bit_length())
    if not half:
        return (TENSOR_CORE_TILE,)
    wide = LINE // shape.size
    if shape.size == 2 and m * n <= device.products.wide_steps and shape.k >= 4 * wide:
        return (wide, 2 * wide)
    return (min(wide, short),)


def estimate(shape: Shape, dtype: str, tile: GemmTile, device: Device) -> float:
    """Microseconds that a product takes, by the model."""
    reached = dict(device.half_tiles if uses_tensor_cores(dtype, device) else device.float_tiles)
    part = reached.get((tile.m, tile.n), device.products.unknown_part)
    if dtype == "f32" and device.float32 != "ieee":
        part = part / FLOAT32_PRODUCTS[device.float32]
    threads = WARP * tile.warps
    programs = -(-shape.m // tile.m) * -(-shape.n // tile.n) * shape.batch * tile.split
    shared = (tile.m + tile.n) * tile.k * shape.size * tile.stages
    registers = (tile.m * tile.n // threads + device.products.other_registers) * threads
    together = max(1, min(device.shared // shared, REGISTERS // registers, -(-programs // device.sms)))
    rounds = -(-programs // (device.sms * together))
    count = -(-shape.k // (tile.k * tile.split))
    roof, memory = device.tflops * 1e6 / device.sms, device.bytes_a_microsecond / device.sms  # of one
    compute = 2 * tile.m * tile.n * tile.k / (roof * part) * together
    loads = (tile.m + tile.n) * tile.k * shape.size * together / (memory * device.l2_speed)
    program = device.startup + device.latency + count * max(compute, loads, device.latency / tile.stages)
    program += tile.m * tile.n * shape.size * together / memory * device.products.epilogue
    traffic = (shape.m * shape.k + shape.n * shape.k + shape.m * shape.n) * shape.batch * shape.size
    gather = device.gather + device.gather_part * tile.split if tile.split > 1 else 0.0
    return max(rounds * program, traffic / (device.bytes_a_microsecond)) + gather


def vector_tile(shape: Shape, device: Device) -> GemmTile:
    """The tile of a product with one row: programs that fill the chip twice, each with a few rows of the weight."""
    facts, full = device.products, 2 * device.sms
    n = facts.row_columns
    while n > facts.least_row_columns and -(-shape.n // n) * shape.batch < full:
        n //= 2
    split, most = 1, facts.row_splits if shape.fixed_k else 1
    while split < most and shape.k >= split * facts.row_depth and shape.n // n * shape.batch * split < full:
        split *= 2
    step = max(TENSOR_CORE_TILE, min(facts.row_step, 1 << max(shape.k - 1, 0).bit_length()))
    return GemmTile(1, n, step, 4, 3, split, vector=True)


def depthwise_tile(node: Conv, device: Device) -> GemmTile:
    channels, (least, most) = typical(node.dims[3].extent), device.products.depthwise_channels
    n = max(least, min(most, 1 << (channels - 1).bit_length()))
    return GemmTile(device.products.depthwise // n, n, TENSOR_CORE_TILE, 4, 2)


# attention -----------------------------------------------------------------------------------------------------------
def attention_tile(node: Attention, device: Device) -> AttentionTile:
    """The tile of an attention on a device."""
    from .fit import attention_misfit
    from .measured import measured_attention

    b, h, m, e = node.dims
    head = max(typical(node.head_size), typical(e.extent))
    # of the most queries: with fewer, rows of a tile are idle, which costs less than too many tiles
    queries, keys = typical(m.extent, 1), typical(node.keys)
    products, dtype = typical(b.extent) * typical(h.extent), node.q.buffer.dtype
    known = measured_attention(queries, keys, head, products, node.causal, dtype, device)
    if known is not None and not attention_misfit(node, known):
        return known
    facts, floats = device.attention, dtype == "f32"
    rows, columns = next(tile for most, tile in (facts.float_tiles if floats else facts.half_tiles) if head <= most)
    if m.extent.constant is None:
        rows = min(rows, facts.dynamic_rows)
    group = typical(h.extent) // typical(node.kv_heads)
    packed = queries * group if queries * 2 <= facts.packed and group > 1 else queries
    products = typical(b.extent) * (typical(node.kv_heads) if packed != queries else typical(h.extent))
    while rows > facts.least_rows and (rows >= 2 * packed or -(-packed // rows) * products < device.sms):
        rows //= 2
    programs = -(-packed // rows) * products
    split = 1
    most = 1 if node.causal else facts.splits
    while split < most and programs * split <= device.sms and keys >= split * columns * facts.steps:
        split *= 2
    warps = facts.few_warps if rows < facts.many_rows else facts.warps
    stages = facts.float_stages if floats else facts.half_stages
    return AttentionTile(rows, columns, warps, stages, split)
