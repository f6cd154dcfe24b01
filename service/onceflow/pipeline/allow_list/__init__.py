"""Everything that a query may reach: what is not listed here is refused.

`functions` judges every function of Spark SQL by name, `classes` the parts of Spark's plans by
class, `check` applies both. docs/security.md shows what is let in, what is not, and why.
"""
