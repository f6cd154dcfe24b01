"""Every row of the fault matrix with many seeds, an hour of random faults, and their page."""
