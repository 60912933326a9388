"""Passes that change how a result is summed: split reductions, Welford, online softmax, split-K."""
