"""At least one sample of every lowering."""

from __future__ import annotations

from ..helpers.samples import Sample
from . import elementwise_samples, ordered_samples, size_samples, special_samples, structured_samples

FAMILIES = (
    *elementwise_samples.FAMILIES, *structured_samples.FAMILIES, *size_samples.FAMILIES, ordered_samples.scans,
    ordered_samples.scatters, ordered_samples.sorts, *special_samples.FAMILIES,
)  # fmt: skip


def samples() -> list[Sample]:
    """All samples, each name once."""
    return list({s.name: s for family in FAMILIES for s in family()}.values())
