"""Code generation for GPUs: nodes of the loop IR as Triton kernels and their launches."""
