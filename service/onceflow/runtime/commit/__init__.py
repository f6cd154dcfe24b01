"""Writes with transactions: claims a pipeline, keeps lanes ready, commits. Knows no Spark."""
