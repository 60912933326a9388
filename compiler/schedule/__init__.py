"""Scheduling: what is fused, in which order kernels run, where buffers lie. Decisions live here; templates spell them."""

from .schedule import Schedule, schedule

__all__ = ["Schedule", "schedule"]
