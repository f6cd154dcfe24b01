"""Looks at a pipeline from outside: ledger, brokers and bulletins."""
