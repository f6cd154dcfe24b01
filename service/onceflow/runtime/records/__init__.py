"""From Spark's result to numbered records."""
