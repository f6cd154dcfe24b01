"""References as tables of a query: their rows are those of each batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.errors import Fault
from onceflow.java.loader import new_instance
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.types import spark_schema
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.pipeline.references.declaration import VALID_UNTIL


@dataclass(frozen=True)
class TablePlace:
    """Where the rows of tables are found when a batch is planned.

    Args:
        folder: of `ReferenceFiles`.
        unset: name -> the rows of a query whose offsets name none.
    """

    folder: str
    unset: Mapping[str, str] = field(default_factory=dict)


NOWHERE = TablePlace("")
"""For an analysis, which needs no rows."""


def open_tables(
    spark: SparkSession, pipeline: Pipeline, place: TablePlace
) -> Mapping[str, DataFrame]:
    """Each reference as a table that is sent to the tasks whole, so that joins keep their order."""
    return {
        name: F.broadcast(_opened(spark, name, spark_schema(block.reference.table_columns), place))
        for name, block in pipeline.references.items()
    }


def _opened(spark: SparkSession, name: str, schema: Any, place: TablePlace) -> DataFrame:
    jvm = jvm_of(spark)
    java_schema = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    relation = new_instance(jvm, "ReferenceRelation")
    relation = relation.of(name, java_schema, place.folder, place.unset.get(name, ""))
    return DataFrame(relation.open(spark._jsparkSession), spark)  # noqa: SLF001  no public way


def table_faults(
    pipeline: Pipeline, looked_up: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, Fault]]:
    """Name of a reference and what is wrong with its use.

    Args:
        pipeline: with its references.
        looked_up: reference -> its columns that influence the result.
    """
    for name, block in pipeline.references.items():
        if name not in looked_up:
            suggestion = "Use it in the query, or remove it."
            yield name, Fault(f"the reference `{name}` is not used", suggestion=suggestion)
        elif block.valid_from and not {block.valid_from, VALID_UNTIL} <= looked_up[name]:
            start = f"{name}.{block.valid_from}"
            yield (
                name,
                Fault(
                    f"the query does not say at which time `{name}` is looked up",
                    expected=f"a condition on `{block.valid_from}` and `{VALID_UNTIL}`",
                    suggestion=f"Join ON ... AND at >= {start} AND at < {name}.{VALID_UNTIL}.",
                ),
            )
