"""`python -m tests.faults.sweep.storm.feeder`: writes the storm's input at a steady rate.

A process of its own, so that no fault and no reader takes its time. It ends at once when its
standard input ends, and in order at the line `finish`: everything is delivered, then the records
that close all windows, then `feeder.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from onceflow.clock import Clock, SystemClock
from tests.faults.sweep.storm.workload import (
    CLOSING_MS,
    END_PAGE,
    INPUT_PARTITIONS,
    LATENESS_MS,
    page_of,
    payload,
)

PACE_S = 0.01
MARK_INTERVAL_S = 0.1
AHEAD_MS = LATENESS_MS // 2
"""How far event time may run ahead of the oldest record that is not acknowledged."""
FINISH_TIMEOUT_S = 240.0
"""Longer than any broker is gone."""
REPORT = "feeder.json"
MARKS = "marks.jsonl"


@dataclass
class Fed:
    """The result of feeding; ids are 0, 1, 2, ... without a hole.

    Args:
        start_ms: event time of id 0.
        rate: records per second of event time.
        produced: how many ids were handed to the client, closing records included.
        unknown: ids that the client gave up; they may be in the log or not.
        producers: 1, and one more for each that failed for good.
        late_ms: how far behind its rate it was at worst.
    """

    start_ms: int
    rate: int
    produced: int = 0
    unknown: list[int] = field(default_factory=list)
    producers: int = 1
    late_ms: int = 0

    def acknowledged(self) -> Iterator[int]:
        unknown = set(self.unknown)
        return (number for number in range(self.produced) if number not in unknown)


class Feeder:
    """Not thread-safe.

    Args:
        bootstrap_servers: where to write.
        topic: exists, with INPUT_PARTITIONS.
        rate: records per second.
        clock: sets the pace and the event time.
    """

    def __init__(self, bootstrap_servers: str, topic: str, rate: int, clock: Clock) -> None:
        self.fed = Fed(clock.unix_ms(), rate)
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._clock = clock
        self._done = [0] * INPUT_PARTITIONS
        """Delivery reports of each partition, which come in order."""
        self._producer = self._open()

    def run(self, is_over: threading.Event, marks: IO[str]) -> None:
        """Write until told to end."""
        next_mark_s = 0.0
        while not is_over.is_set():
            now_ms = self._clock.unix_ms()
            self.fed.late_ms = max(self.fed.late_ms, now_ms - self._at_ms(self.fed.produced))
            while not is_over.is_set() and self._at_ms(self.fed.produced) <= now_ms:
                if not self._may_go_on():
                    break
                self._send(self.fed.produced, self._at_ms(self.fed.produced))
            self._producer.poll(0)
            if self._clock.monotonic_s() >= next_mark_s:
                next_mark_s = self._clock.monotonic_s() + MARK_INTERVAL_S
                self._mark(marks)
            self._clock.sleep(PACE_S)

    def finish(self, marks: IO[str]) -> Fed:
        """Deliver everything, then close every window.

        Raises:
            RuntimeError: the brokers did not take it all.
        """
        self._flush()
        self._mark(marks)
        closing_ms = self._at_ms(self.fed.produced) + CLOSING_MS
        for _ in range(INPUT_PARTITIONS):
            self._send(self.fed.produced, closing_ms, END_PAGE)
        self._flush()
        return self.fed

    def _at_ms(self, number: int) -> int:
        return self.fed.start_ms + number * 1000 // self.fed.rate

    def _delivered(self) -> int:
        """Every id below it has its report."""
        return min(done * INPUT_PARTITIONS + partition for partition, done in enumerate(self._done))

    def _may_go_on(self) -> bool:
        ahead_ms = self._at_ms(self.fed.produced) - self._at_ms(self._delivered())
        return ahead_ms <= AHEAD_MS

    def _send(self, number: int, at_ms: int, page: str | None = None) -> None:
        value = payload(number, at_ms, page or page_of(number))
        partition = number % INPUT_PARTITIONS
        for _ in range(2):
            try:
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._on_delivery
                )
                break
            except BufferError:
                self._producer.poll(0.1)
                return
            except KafkaException:
                # An idempotent producer that failed for good; what it had in flight is unknown.
                self._producer.flush(5)
                self._producer = self._open()
                self.fed.producers += 1
        self.fed.produced += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        partition, value = message.partition(), message.value()
        assert partition is not None
        self._done[partition] += 1
        if error is not None:
            assert isinstance(value, bytes)
            self.fed.unknown.append(int(json.loads(value)["id"]))

    def _mark(self, marks: IO[str]) -> None:
        """When which event time was readable at the latest."""
        newest = max(
            (done - 1) * INPUT_PARTITIONS + partition for partition, done in enumerate(self._done)
        )
        if newest >= 0:
            marks.write(f"[{self._clock.unix_ms()}, {self._at_ms(newest)}]\n")

    def _flush(self) -> None:
        deadline = self._clock.within(FINISH_TIMEOUT_S)
        while self._producer.flush(1) > 0:
            if deadline.is_over:
                raise RuntimeError("the brokers do not take the input")

    def _open(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 50,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 2,
            }
        )


class FeederProcess:
    """Its other end, in the storm."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> Fed:
        """Ends it in order; returns what came of the input."""
        assert self._process.stdin is not None
        self._process.stdin.write("finish\n")
        self._process.stdin.flush()
        code = self._process.wait(FINISH_TIMEOUT_S * 2)
        assert code == 0, f"the feeder ended with {code}: {self._folder / 'feeder.err'}"
        return Fed(**json.loads((self._folder / REPORT).read_text()))


@contextmanager
def feeding(bootstrap_servers: str, topic: str, rate: int, folder: Path) -> Iterator[FeederProcess]:
    """A feeder that ends with the block."""
    command = [sys.executable, "-m", "tests.faults.sweep.storm.feeder"]
    command += [bootstrap_servers, topic, str(rate), str(folder)]
    with (folder / "feeder.err").open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    try:
        yield FeederProcess(process, folder)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait(10)
        if process.stdin is not None:
            process.stdin.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("rate", type=int)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    is_over = threading.Event()
    orders: list[str] = []

    def listen() -> None:
        orders.append(sys.stdin.readline().strip())
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    feeder = Feeder(given.bootstrap_servers, given.topic, given.rate, SystemClock())
    with (given.folder / MARKS).open("w", buffering=1) as marks:
        feeder.run(is_over, marks)
        if orders != ["finish"]:
            return 1
        fed = feeder.finish(marks)
    (given.folder / REPORT).write_text(json.dumps(asdict(fed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
