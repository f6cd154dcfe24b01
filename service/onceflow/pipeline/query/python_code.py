"""Lets Spark's workers import the user's modules."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession


def let_workers_import(spark: SparkSession, folder: Path) -> None:
    """Functions of the user's modules are sent to workers by name, so these must find them, too."""
    environment = spark.sparkContext.environment
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in places:
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, places)])
