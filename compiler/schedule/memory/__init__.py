"""The memory plan, and results that take over the memory of an operand."""
