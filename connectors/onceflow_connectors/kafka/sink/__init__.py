"""Writes output in transactions, and reads the ledger that is written with it."""
