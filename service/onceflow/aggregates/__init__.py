"""Aggregates of the user: commutative monoids, checked by their laws."""
