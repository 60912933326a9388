"""Published checkpoints whose weights are quantised: their tensors as the integers that mycc's operators take."""
