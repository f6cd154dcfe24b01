"""Knows which versions of references the batch in hand has, and which ones are still needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyspark.sql import SparkSession

from onceflow.clock import Clock
from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.protocol.ledger import BatchPlan
from onceflow.protocol.references import ReferenceVersion, versions_from_json
from onceflow.runtime.checkpoint.checkpoint import Checkpoint


class ReferenceDesk:
    """Looks after the references of one run.

    Args:
        warn: told of each version that could not be used, once.
    """

    def __init__(
        self, spark: SparkSession, checkpoint: Checkpoint, clock: Clock, warn: Callable[[str], None]
    ) -> None:
        self._reader: Any = new_instance(jvm_of(spark), "Parameters")
        self._checkpoint, self._clock, self._warn = checkpoint, clock, warn
        self._refused: Mapping[str, str] = {}
        self._swept: Mapping[str, ReferenceVersion] = {}
        self._needed: dict[int, Collection[str]] = {}

    def versions(self) -> Mapping[str, ReferenceVersion]:
        """For use inside `foreachBatch`: what the offsets of the batch say."""
        told = json.loads(self._reader.references())
        refused = {name: each["refused"] for name, each in told.items() if "refused" in each}
        for name, why in refused.items():
            if self._refused.get(name) != why:
                self._warn(f"reference {name}: {why}; its last good version stays")
        self._refused = refused
        return versions_from_json(told)

    def sweep(self, plan: BatchPlan) -> None:
        """After a batch with other versions: remove those that no planned batch has."""
        if plan.references == self._swept:
            return
        planned = self._checkpoint.planned_batches()
        self._needed = {
            n: self._needed[n] if n in self._needed else self._checkpoint.references_in(n)
            for n in planned
        }
        needed = {rows for each in self._needed.values() for rows in each}
        self._checkpoint.references.sweep(needed, self._clock.unix_ms())
        self._swept = plan.references
