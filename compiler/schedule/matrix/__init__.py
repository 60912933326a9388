"""How products, convolutions and attention run on CPUs."""
