"""The plans of the kernels of routines: what each launch of them has."""

from __future__ import annotations

from ...ir.index import Index, product
from ...ir.plans.gpu import GpuPlan
from ...machine.gpu import Device
from ..cost.estimates import number


def routine_plan(warps: int, programs: tuple[Index, ...], device: Device) -> GpuPlan:
    """The plan of a launch with so many programs along x, y and z."""
    return GpuPlan("routine", warps, pdl=device.pdl, room=device.leaves_room(number(product(programs))))
