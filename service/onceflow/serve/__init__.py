"""Runs pipelines in one process: starts, restarts, drains, and shows how they are."""
