"""What may be chosen for a kernel, and what was chosen. Light: imports no stage of the compiler."""
