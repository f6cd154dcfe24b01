"""Sources as Spark's Python data source, and their ticks."""
