"""Promises as tests, for packages that add a kind of source or of target. Needs pytest."""
