"""Settings of a Spark that serves this process alone: no other process reaches its ports."""

from __future__ import annotations

from collections.abc import Mapping

LOOPBACK: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Others on this machine reach loopback, too. Spark draws a secret for each run.
    "spark.authenticate": "true",
}
