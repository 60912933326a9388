"""The launches of a GPU target as rows of the manifest: what each does, and what its kernel takes of the chip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ir.index import ONE, ZERO
from ..machine.gpu import Device
from ..schedule.report import kernel_rows

if TYPE_CHECKING:
    from ..build.images import KernelImage
    from ..codegen.cuda.generate import DeviceCode

__all__ = ["launch_rows", "target_roof"]

#: what a row takes over from the compiler's facts about its kernel
FACTS = ("threads", "shared", "registers", "spills", "accesses")
#: counted once: at the first launch of a node, or at the last of those that are for the sizes of a call
WORK = ("flops", "bytes", "writes", "weights")


def target_roof(device: Device) -> dict[str, Any]:
    """The chip that a GPU's kernels were made for, and what it can do at most, for its row of the manifest: bf16
    products in TFLOP/s, memory in TB/s."""
    return {
        "chip": device.name,
        "roof": {"sms": device.sms, "tflops": device.tflops, "tbytes": device.bandwidth},
    }


def launch_rows(code: DeviceCode, entry: int, images: Sequence[KernelImage]) -> list[dict[str, Any]]:
    """One row per launch of an entry point, in order: the row of its node (see schedule.report) under the kernel's
    name, with the number of the node, the grid (formulas over the symbols) and the kernel's facts."""
    source = code.entries[entry]
    facts = {image.symbol: image.facts for image in images}
    nodes = kernel_rows(source.schedule, source.schedule.names)
    rows, seen = [], set[int]()
    launches = list(zip(source.launches, source.nodes, strict=True))
    last = {(node, launch.when): i for i, (launch, node) in enumerate(launches)}
    for i, (launch, node) in enumerate(launches):
        row = dict(nodes[node])
        if node in seen and launch.when == ONE:
            row |= {key: "0" for key in WORK if key in row}
        seen.add(node)
        own = facts[launch.kernel.symbol]
        if launch.when != ONE:
            counted = launch.when if last[node, launch.when] == i else ZERO
            row |= {key: f"({row[key]})*({counted})" for key in WORK if key in row}
        row |= {"name": launch.kernel.symbol, "node": node, "grid": [str(extent) for extent in launch.grid]}
        rows.append(row | {key: own[key] for key in FACTS})
    return rows
