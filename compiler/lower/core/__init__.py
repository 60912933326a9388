"""What all lowerings share: the driver, the builder, values, constants, sizes and outputs."""
