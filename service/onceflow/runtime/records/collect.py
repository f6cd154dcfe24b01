"""Brings the rows of a frame to the driver, within its budget."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from onceflow.runtime.spark.errors import over_budget, translated_errors


def collect(frame: DataFrame, max_result_bytes: int) -> pa.Table:
    """Run the plan, once.

    Raises:
        ConfigError: the rows are larger than the budget.
        OnceflowError: what a source, or one of our functions, raised in a worker.
    """
    with translated_errors(max_result_bytes):
        table = frame.toArrow()
    if table.nbytes > max_result_bytes:
        raise over_budget(max_result_bytes, f"{table.nbytes} bytes")
    return table
