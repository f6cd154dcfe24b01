"""Watches the output while drivers die: what a committed reader has, and what holds it back."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from onceflow.clock import Clock

PROBE_S = 0.05
ASK_TIMEOUT_S = 5.0
PARTITION = 0
"""The output has one partition: a standstill of one is that of all."""


class Watch:
    """A committed reader, and a probe of the two ends of the log, each in a thread.

    Args:
        bootstrap_servers: where.
        topic: exists, with one partition.
        clock: tells when.
    """

    def __init__(self, bootstrap_servers: str, topic: str, clock: Clock) -> None:
        self.seen: list[tuple[int, int]] = []
        """When, and the offset of the last record that was there by then."""
        self.probes: list[tuple[int, bool]] = []
        """When, and whether the last stable offset was behind the high watermark."""
        self._clock = clock
        self._place = TopicPartition(topic, PARTITION)
        self._is_over = threading.Event()
        self._reader = _open(bootstrap_servers, "read_committed")
        self._stable = _open(bootstrap_servers, "read_committed")
        self._high = _open(bootstrap_servers, "read_uncommitted")
        self._threads = [threading.Thread(target=run) for run in (self._read, self._probe)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        for client in (self._reader, self._stable, self._high):
            client.close()

    def high_watermark(self) -> int:
        """Everything that any driver has written so far is below it."""
        return int(self._high.get_watermark_offsets(self._place, ASK_TIMEOUT_S)[1])

    def first_at_or_above(self, offset: int) -> int | None:
        """When a committed reader first had a record at or above an offset; None: not yet."""
        return next((at_ms for at_ms, newest in self.seen if newest >= offset), None)

    def _read(self) -> None:
        self._reader.assign([TopicPartition(self._place.topic, PARTITION, 0)])
        while not self._is_over.is_set():
            messages = self._reader.consume(1_000, 0.1)
            offsets = [m.offset() for m in messages if m.error() is None]
            if offsets:
                self.seen.append((self._clock.unix_ms(), max(o for o in offsets if o is not None)))

    def _probe(self) -> None:
        while not self._is_over.is_set():
            with suppress(KafkaException):
                at_ms = self._clock.unix_ms()
                # In this order: what commits between the two questions is not taken for a block.
                high = self._high.get_watermark_offsets(self._place, ASK_TIMEOUT_S)[1]
                stable = self._stable.get_watermark_offsets(self._place, ASK_TIMEOUT_S)[1]
                self.probes.append((at_ms, stable < high))
            self._is_over.wait(PROBE_S)


def _open(bootstrap_servers: str, isolation_level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "recovery",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 2,
        }
    )
