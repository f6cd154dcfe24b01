"""Spark's plans as plain data."""
