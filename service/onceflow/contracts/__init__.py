"""Contracts that connectors implement, and how connectors are found."""
