"""Lowerings of random operators: torch's generators on CPUs and on GPUs."""
