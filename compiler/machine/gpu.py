"""What the compiler knows of a GPU: the numbers that schedules and tiles are chosen by. One row per chip family."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .targets import Target

#: programs for each multiprocessor that leave room for those of the next kernel
CROWD = 4


@dataclass(frozen=True)
class Device:
    """A GPU to generate for.

    capability: 90 for sm_90. sms: multiprocessors. shared: bytes of shared memory that one program may have. tflops:
    dense bf16 roof, for estimates, with bandwidth in TB/s and additions, those of float32 in 10^12 a second. pdl:
    kernels may be launched before their predecessor has ended (griddepcontrol, from sm_90 on). float32: how float32
    products are made: "ieee", "tf32x3" (three tf32 products: as exact and three times faster, see
    docs/decisions/0009) or "tf32".
    """

    capability: int
    sms: int
    shared: int
    tflops: float
    bandwidth: float
    additions: float
    pdl: bool = False
    float32: str = "tf32x3"

    @property
    def descriptors(self) -> bool:
        """Whether tensor descriptors are instructions of the chip."""
        return self.capability >= 90

    def leaves_room(self, programs: int) -> bool:
        """Whether the next kernel's programs may take their places while so many programs run.

        They wait there for the end of this kernel. Few programs leave every multiprocessor room for them; beside many
        they settle where some end first, and lie unevenly when they begin (docs/decisions/0056).
        """
        return programs <= CROWD * self.sms


#: capability -> the chip that most users of it have: A100, H100 SXM and H200, B200
DEVICES = {
    80: Device(80, 108, 163 * 1024, 312, 2.0, 9.7),
    90: Device(90, 132, 227 * 1024, 790, 4.3, 29.0, pdl=True),
    100: Device(100, 148, 227 * 1024, 2250, 8.0, 35.0, pdl=True),
}


def device_of(capability: int) -> Device:
    """The numbers of the nearest chip that is not newer."""
    known = [c for c in DEVICES if c <= capability]
    return DEVICES[max(known, default=80)]


def device_for(target: Target, tf32: bool = False) -> Device:
    """The device that a target's kernels are made for; tf32: products of float32 may round their operands."""
    device = device_of(target.capability)
    return replace(device, float32="tf32") if tf32 else device
