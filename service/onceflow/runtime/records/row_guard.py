"""Bounds the rows that a query makes between its sources and its result.

Spark has no setting for that, and nothing stops a task that makes millions of rows of one. So
Spark's optimizer gets our own rule, which puts a filter above each step that makes several rows
of one. It lets every row through, and fails when a task has seen too many.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.plan import analysed_plan, jvm_of

_COUNT_BITS = (1 << 33) - 1
"""Of `monotonically_increasing_id()`: how many rows the task has seen before."""


def guard_rows(spark: SparkSession, max_rows: int) -> None:
    """Let queries that are started from now on fail where a task makes more rows at one step."""
    # Under the name of our error, by which it is found again in what Spark says.
    message = (
        f"onceflow.errors.ConfigError: a step of the query makes too many rows; expected at most"
        f" {max_rows} in a task (spark.max_rows); nothing of this batch was written."
    )
    condition = (
        f"if((monotonically_increasing_id() & {_COUNT_BITS}L) < {max_rows}L, true,"
        f" cast(raise_error('{message}') AS BOOLEAN))"
    )
    example = analysed_plan(spark.range(1).where(condition))
    jvm = jvm_of(spark)
    rule = getattr(new_instance(jvm, "RowGuard"), "with")(example)
    new_instance(jvm, "PlanRules").put(spark._jsparkSession, rule)  # noqa: SLF001  no public way
