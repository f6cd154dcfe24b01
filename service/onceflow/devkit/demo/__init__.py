"""The demonstration: a real pipeline on a real broker, killed in mid-batch, and a proof."""
