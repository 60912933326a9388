"""How an index moves along the lanes of a vector: see ir/lanes.py."""

from ..ir.lanes import ALIGNMENT, depends, lane_stride

__all__ = ["ALIGNMENT", "depends", "lane_stride"]
