"""What the schedule of a GPU program has beside the CPU's."""
