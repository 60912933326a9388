"""Plans: how a kernel runs what its node says. The schedule makes them, a field a pass; code generation spells them."""
