"""Writes for one run of a pipeline: claims it, fences its predecessors, commits. Knows no Spark."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection, Connector, TopicInfo
from onceflow.contracts.observer import Observer
from onceflow.contracts.sink import Appender, Incarnation, Ledger
from onceflow.protocol.compare import Comparison
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import HeadEntry
from onceflow.protocol.takeover import Claimant
from onceflow.runtime.commit.committer import Committer
from onceflow.runtime.commit.lanes import LanePool
from onceflow.runtime.commit.takeover import Takeover, TakeoverAttempt
from onceflow.runtime.topics.topic_settings import max_bytes

DEFAULT_BATCH_BYTES = 1_000_000
"""librdkafka's own."""
RECORD_LIMIT_PROPERTY = "message.max.bytes"
TIMEOUT_PROPERTY = "transaction.timeout.ms"


def record_limit_bytes(topic: TopicInfo | None, connection: Connection) -> int:
    """Largest record that can be written to a topic: by its limit, or a lower one of the client."""
    limit_bytes = max_bytes(topic)
    return min(limit_bytes, int(connection.properties.get(RECORD_LIMIT_PROPERTY, limit_bytes)))


@dataclass(eq=False)
class Writer:
    """The writing side of one run. Not reusable: another take-over needs another writer.

    Args:
        ledger: of the pipeline; used by the thread that claims and commits.
        transaction_timeout_s: for one batch's transaction; also Kafka's limit for an open one.
        takeover_timeout_s: to claim and fence, and to find out what became of a lost commit.
        max_batch_bytes: of a request; the topic's limit is on requests of the client, which does
            not split them.
    """

    pipeline: str
    layout: Layout
    connector: Connector
    connection: Connection
    ledger: Ledger
    clock: Clock
    transaction_timeout_s: float
    takeover_timeout_s: float
    observer: Observer = field(default_factory=Observer)
    max_batch_bytes: int = DEFAULT_BATCH_BYTES
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    takeover: Takeover = field(init=False)
    pool: LanePool = field(init=False)
    committer: Committer = field(init=False)

    def __post_init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def claim(self, compare: Callable[[HeadEntry | None], Comparison]) -> Takeover:
        """Become the owner; from then on, `committer` commits.

        Raises:
            OnceflowError: as `TakeoverAttempt.run`.
        """
        now_ms = self.clock.unix_ms()
        attempt = TakeoverAttempt(
            pipeline=self.pipeline,
            claimant=Claimant(self.run_id, socket.gethostname(), now_ms, self.layout),
            open_incarnation=self.open_incarnation,
            ledger=self.ledger,
            compare=compare,
            clock=self.clock,
            timeout_s=self.takeover_timeout_s,
        )
        self.takeover = attempt.run()
        # The pool reads `owner` from its own threads, the committer from Spark's.
        pool_ledger = self.connector.ledger(self.pipeline, self.connection)
        self._stack.callback(pool_ledger.close)
        self.pool = LanePool(
            pipeline=self.pipeline,
            layout=self.layout,
            run_id=self.run_id,
            open_incarnation=self.open_incarnation,
            ledger=pool_ledger,
            clock=self.clock,
            settle_timeout_s=self.transaction_timeout_s,
        )
        self._stack.callback(self.pool.close)
        self.pool.start(self.takeover.lanes)
        appender = self.open_appender()
        self._stack.callback(appender.close)
        self.committer = Committer(
            pipeline=self.pipeline,
            run_id=self.run_id,
            pool=self.pool,
            appender=appender,
            ledger=self.ledger,
            clock=self.clock,
            transaction_timeout_s=self.transaction_timeout_s,
            resolve_timeout_s=self.takeover_timeout_s,
            observer=self.observer,
        )
        return self.takeover

    def open_incarnation(self, transactional_id: str) -> Incarnation:
        """Make a new client of a transactional id. Asks no broker yet."""
        return self.connector.incarnation(transactional_id, self._writing())

    def open_appender(self) -> Appender:
        """Make a client that writes outside transactions."""
        return self.connector.appender(self._writing())

    def _writing(self) -> Connection:
        properties = {
            **self.connection.properties,
            # Kafka's limit for an open transaction: what one batch may take.
            TIMEOUT_PROPERTY: str(int(self.transaction_timeout_s * 1000)),
            "batch.size": str(min(DEFAULT_BATCH_BYTES, self.max_batch_bytes)),
        }
        return Connection(self.connection.bootstrap_servers, properties)
