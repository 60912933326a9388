"""Host programs: size formulas, memory plan, and the calls or launches of kernels."""
