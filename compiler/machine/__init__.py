"""The machines that packages are built for: instruction sets, GPUs, and what this machine is."""
