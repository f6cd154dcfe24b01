"""Looks things up, reads and writes plainly, grants rights. Never writes output."""
