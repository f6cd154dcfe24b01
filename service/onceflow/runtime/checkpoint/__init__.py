"""Spark's checkpoint, as files."""
