"""A user's program that reads Onceflow's output, to be killed and frozen by tests.

Run as a script with a `Job` as JSON. It shows the two ways to work: `commit` applies an effect and
then commits to Kafka; `database` stores effect and position in one transaction of its own.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceflow.crashpoints import CrashPoint, reach
from onceflow_connectors.consumer import FilteringConsumer, Hooks, Position, Record
from tests.support.contracts.real_consumer import FLAVOURS

TAKEN_OVER = 3
"""Exit code of a program that found its partition in other hands."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS effect (value TEXT);
CREATE TABLE IF NOT EXISTS position (
    topic TEXT, partition INTEGER, next INTEGER, state TEXT, PRIMARY KEY (topic, partition)
);
"""
TAKE_POSITION = "SELECT next, state FROM position WHERE topic = ? AND partition = ?"
MOVE_POSITION = """
INSERT INTO position VALUES (:topic, :partition, :next, :state)
ON CONFLICT DO UPDATE SET next = :next, state = :state WHERE next <= :read
"""
"""Moves forward only: who lost the partition to another member changes nothing."""


@dataclass(frozen=True)
class Job:
    """Settings of one run of the program.

    Args:
        flavour: a key of `FLAVOURS`.
        last: value of the record after which to stop.
    """

    mode: str
    flavour: str
    bootstrap_servers: str
    topic: str
    last: str
    folder: str
    commit_every: int = 1
    properties: dict[str, Any] = field(default_factory=dict)

    def consumer(self, hooks: Hooks) -> FilteringConsumer:
        return FLAVOURS[self.flavour].consumer(
            self.bootstrap_servers,
            group=self.topic,
            topics=[self.topic],
            hooks=hooks,
            properties=self.properties,
        )

    @property
    def effects(self) -> Path:
        """One line per effect of the mode `commit`."""
        return Path(self.folder) / "effects.txt"

    @property
    def database(self) -> Path:
        """File of the mode `database`."""
        return Path(self.folder) / "effects.sqlite"


def text_of(record: Record) -> str:
    return (record.value or b"").decode()


def apply_and_commit(job: Job) -> int:
    """Effects go to a file; what was not committed when the program dies is applied again."""
    with job.consumer(Hooks()) as records, job.effects.open("a") as effects:
        for count, record in enumerate(records, start=1):
            effects.write(f"{text_of(record)}\n")
            effects.flush()
            is_last = text_of(record) == job.last
            if is_last or count % job.commit_every == 0:
                records.commit()
            if is_last:
                return 0
    raise AssertionError("records ended")


def store(database: sqlite3.Connection, record: Record, position: Position) -> bool:
    """Effect and position in one transaction; False, and nothing, if another one is ahead."""
    with database:
        database.execute("INSERT INTO effect VALUES (?)", (text_of(record),))
        reach(CrashPoint.AFTER_EFFECT)
        moved = database.execute(
            MOVE_POSITION,
            {
                "topic": position.topic,
                "partition": position.partition,
                "next": position.offset,
                "state": position.state,
                "read": record.offset,
            },
        )
        if moved.rowcount == 0:
            database.rollback()
        return moved.rowcount > 0


def apply_in_one_transaction(job: Job) -> int:
    """Effects go to a database together with the position: each is applied once."""
    database = sqlite3.connect(job.database, timeout=60)
    database.executescript(SCHEMA)

    def load(topic: str, partition: int) -> Position | None:
        row = database.execute(TAKE_POSITION, (topic, partition)).fetchone()
        return row and Position(topic, partition, *row)

    with job.consumer(Hooks(load_position=load)) as records:
        for record in records:
            reach(CrashPoint.BEFORE_OFFSET_COMMIT)
            position = records.position(record.topic, record.partition)
            if not store(database, record, position):
                return TAKEN_OVER
            if text_of(record) == job.last:
                return 0
    raise AssertionError("records ended")


MODES: dict[str, Callable[[Job], int]] = {
    "commit": apply_and_commit,
    "database": apply_in_one_transaction,
}

if __name__ == "__main__":
    given = Job(**json.loads(sys.argv[1]))
    sys.exit(MODES[given.mode](given))
