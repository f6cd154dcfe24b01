"""Writes the input and reads the output, as a client of Kafka that knows nothing of the engines."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.workload import Cell, Oracle, Result, Workload, backlog_time_ms
from onceflow.clock import Clock, Deadline
from onceflow.errors import DeadlineError

READ_TIMEOUT_S = 600.0
"""To read an output of seven million records, which takes a minute."""
PACE_S = 0.002
"""Between two looks at the clock of a paced load: what it may add to a latency."""
_POLL_EVERY = 1_000


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create a topic, which keeps records of any age, and wait until it exists."""
    made = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    with AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3}) as admin:
        admin.create_topics([made])[topic].result()


def write_backlog(bootstrap_servers: str, topic: str, workload: Workload, records: int) -> Oracle:
    """Write so many records as fast as possible; returns the answer to them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
        }
    )
    oracle = Oracle()
    for number in range(records):
        record = workload.record(number, backlog_time_ms(number))
        oracle.add(record)
        while True:
            try:
                producer.produce(topic, record.payload(), partition=record.partition)
                break
            except BufferError:
                producer.poll(0.1)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    producer.flush()
    return oracle


class PacedLoad:
    """Writes at a fixed rate, whether or not anyone keeps up; remembers what was due when."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        workload: Workload,
        rate: int,
        oracle: Oracle,
        clock: Clock,
    ) -> None:
        self.oracle = oracle
        self.produced_ms: dict[Cell, list[int]] = defaultdict(list)
        self._topic = topic
        self._workload = workload
        self._rate = rate
        self._clock = clock
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        )

    def run(self, duration_s: float) -> None:
        """Write for this long. A record is stamped with the time at which it was due."""
        start_ms = self._clock.unix_ms()
        total = int(duration_s * self._rate)
        number = 0
        while number < total:
            passed_ms = self._clock.unix_ms() - start_ms
            while number < total and number * 1000 // self._rate <= passed_ms:
                self._write(number, start_ms + number * 1000 // self._rate)
                number += 1
            self._producer.poll(0)
            self._clock.sleep(PACE_S)
        self._producer.flush()

    def _write(self, number: int, due_ms: int) -> None:
        record = self._workload.record(number, due_ms)
        self.produced_ms[self.oracle.add(record)].append(due_ms)
        self._producer.produce(self._topic, record.payload(), partition=record.partition)


class OutputTail:
    """Reads a topic with read_committed as it grows, and notes when each record was seen."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, clock: Clock) -> None:
        self.seen: list[tuple[int, Result]] = []
        self.newest: dict[Cell, int] = {}
        """How many records the newest result of each cell counts."""
        self._consumer = _reader(bootstrap_servers, topic, partitions)
        self._clock = clock
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def wait_for(self, oracle: Oracle, deadline: Deadline) -> None:
        """Wait until every record has shown."""
        expected = sum(records for records, _ in oracle.answer.values())
        while (found := sum(self.newest.copy().values())) < expected:
            if deadline.is_over:
                raise DeadlineError(
                    "records are missing in the output",
                    expected=f"{expected} within {deadline.budget_s:g} s",
                    found=str(found),
                    then="no figure of this run counts",
                )
            deadline.clock.sleep(0.1)

    def _run(self) -> None:
        while not self._is_over.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            at_ms = self._clock.unix_ms()
            result = Result.from_payload(message.value() or b"")
            self.seen.append((at_ms, result))
            self.newest[result.cell] = max(result.records, self.newest.get(result.cell, 0))


def read_payloads(
    bootstrap_servers: str, topic: str, partitions: int, clock: Clock
) -> Iterator[bytes]:
    """Every committed record of a topic whose writers have ended."""
    consumer = _reader(bootstrap_servers, topic, partitions)
    deadline = clock.within(READ_TIMEOUT_S)
    ended: set[int | None] = set()
    try:
        while len(ended) < partitions:
            deadline.check("the output cannot be read to its end", subject=topic)
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield message.value() or b""
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def _reader(bootstrap_servers: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    return consumer
