"""Runs processors as a step of a query: Spark's `transformWithState`, a batch of keys at a time."""
