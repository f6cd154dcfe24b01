"""From a source of the contract to a streaming DataFrame, counted as it is read."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own name for it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import SourceSpec
from onceflow.pipeline.source import Source
from onceflow.runtime.batch import observation_name
