"""Spark on one side and the protocol on the other: executes what the protocol decides."""
