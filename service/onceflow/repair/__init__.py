"""Compares output and ledger, and sends dead letters again."""
