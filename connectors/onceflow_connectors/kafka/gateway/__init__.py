"""Writes posts of a gateway to topics, and keeps what it remembers of them in one of its own."""
