"""Scheduling: what is fused, the order of kernels, where buffers lie. Decisions live here; templates spell them."""

from .schedule import Schedule, schedule

__all__ = ["Schedule", "schedule"]
