"""Kills a driver again and again under a steady load, and notes what its successor needs."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer

from onceflow.clock import Clock
from tests.faults.sweep.recovery.figures import (
    Recovery,
    Spread,
    longest_block,
    summarise,
)
from tests.faults.sweep.recovery.watch import Watch
from tests.support.drivers.service import WAREHOUSE, Service, started
from tests.support.eventually import eventually
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import create_topic

NAME = "recovery"
INPUT, OUTPUT = f"{NAME}-in", f"{NAME}-out"
DAY = "2026-03-01"
TICK_S = 0.05
"""Between two records of the steady input: twenty a second."""
FILL_TIMEOUT_S = 600.0
START_TIMEOUT_S = 300.0
MAX_PAUSE_S = 6.0
"""A kill comes at a random instant within this, after the third batch: some twenty batches."""
BATCHES_BEFORE = 3
AS_SHIPPED = {
    "ONCEFLOW_SPARK__MASTER": "local[*]",
    "ONCEFLOW_SPARK__SHUFFLE_PARTITIONS": "0",
    "ONCEFLOW_SPARK__CONF": json.dumps(WAREHOUSE),
}
"""Undoes what other tests set to be quick: the JVM's and Spark's options are those of a user."""


@dataclass(frozen=True)
class Found:
    """The result of a trial.

    Args:
        state_rows: keys in the state.
        state_bytes: of the checkpoint's state folder at the end, history included.
        faults: of the output and the ledger; empty if every record is there once.
    """

    keys: int
    state_rows: int
    state_bytes: int
    recoveries: list[Recovery]
    summary: dict[str, Spread]
    faults: list[str]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


class Trial:
    """One size of state.

    Args:
        bootstrap_servers: of brokers that stay whole.
        folder: for checkpoint and logs; exists.
        keys: in the state.
        dice: for the instants.
        clock: of everything.
        tell: told of each kill.
        is_standing_by: whether the successor stands by when the driver is killed, or starts then.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        keys: int,
        dice: Random,
        clock: Clock,
        tell: Callable[[str], None],
        *,
        is_standing_by: bool = False,
    ) -> None:
        self._servers = bootstrap_servers
        self._folder = folder
        self._keys = keys
        self._dice = dice
        self._clock = clock
        self._tell = tell
        self._is_standing_by = is_standing_by
        self._starts = 0

    def run(self, kills: int) -> Found:
        """Fill the state, then kill so often."""
        create_topic(self._servers, INPUT)
        create_topic(self._servers, OUTPUT)
        file = _pipeline(self._folder)
        recoveries: list[Recovery] = []
        with ExitStack() as stack:
            service = stack.enter_context(self._start(file))
            self._fill()
            stack.enter_context(self._steady_input())
            watch = stack.enter_context(Watch(self._servers, OUTPUT, self._clock))
            # Spark takes snapshots when it tidies up, of what has changed often enough.
            eventually(self._has_snapshots, timeout_s=FILL_TIMEOUT_S)
            for _ in range(kills):
                following = self._stand_by(file, stack)
                ran_s = self._let_run(service)
                killed_ms, high_watermark = self._kill(service, watch)
                service = following or stack.enter_context(self._start(file))
                recoveries.append(self._recovery(service, watch, killed_ms, high_watermark, ran_s))
                told = recoveries[-1].seconds().items()
                self._tell(", ".join(f"{name} {seconds:.1f} s" for name, seconds in told))
            self._let_run(service)
            state_rows = _newest(service, "progress").get("state_rows", 0)
            service.send(signal.SIGTERM)
            assert service.wait() == 0, service.errors[-2000:]
        return self._found(recoveries, state_rows)

    def _found(self, recoveries: list[Recovery], state_rows: int) -> Found:
        written, heads = read_topic(self._servers, OUTPUT), read_ledger(self._servers, NAME)
        return Found(
            keys=self._keys,
            state_rows=state_rows,
            state_bytes=sum(f.stat().st_size for f in self._state.rglob("*") if f.is_file()),
            recoveries=recoveries,
            summary=summarise(recoveries),
            faults=[str(anomaly) for anomaly in anomalies(written, heads)],
        )

    @property
    def _state(self) -> Path:
        return self._folder / "checkpoint" / "state"

    def _start(self, file: Path, *arguments: str) -> AbstractContextManager[Service]:
        self._starts += 1
        folder = self._folder / f"driver-{self._starts:03}"
        return started(folder, file, self._servers, *arguments, environment=AS_SHIPPED)

    def _stand_by(self, file: Path, stack: ExitStack) -> Service | None:
        """The successor, warmed up, if it is to be there before it is needed."""
        if not self._is_standing_by:
            return None
        service = stack.enter_context(self._start(file, "--standby"))
        service.wait_for("standby")
        return service

    def _has_snapshots(self) -> bool:
        """Whether each partition has one: without, a start replays the changes of every batch."""
        partitions = [each for each in self._state.glob("0/[0-9]*") if each.is_dir()]
        return bool(partitions) and all(any(each.glob("*.zip")) for each in partitions)

    def _let_run(self, service: Service) -> float:
        """Until a random instant after its third batch; returns the seconds after that."""
        eventually(
            lambda: len(service.of_kind("batch")) >= BATCHES_BEFORE, timeout_s=START_TIMEOUT_S
        )
        pause_s = self._dice.uniform(0, MAX_PAUSE_S)
        self._clock.sleep(pause_s)
        return pause_s

    def _kill(self, service: Service, watch: Watch) -> tuple[int, int]:
        """Python and the JVM at once; returns when they were gone, and the end of the output."""
        os.killpg(service.process.pid, signal.SIGKILL)
        assert service.wait() == -signal.SIGKILL
        return self._clock.unix_ms(), watch.high_watermark()

    def _recovery(
        self, service: Service, watch: Watch, killed_ms: int, high_watermark: int, ran_s: float
    ) -> Recovery:
        visible_ms = eventually(
            lambda: watch.first_at_or_above(high_watermark), timeout_s=START_TIMEOUT_S
        )
        assert visible_ms is not None
        first = {event: service.of_kind(event)[0]["ts"] for event in ("owner", "running")}
        written = eventually(
            lambda: [b for b in service.of_kind("batch") if b["records"]["written"]]
        )
        return Recovery(
            killed_ms=killed_ms,
            owner_ms=first["owner"],
            running_ms=first["running"],
            batch_ms=min(written[0]["ts"], visible_ms),
            visible_ms=visible_ms,
            blocked_ms=longest_block(list(watch.probes), killed_ms, visible_ms),
            ran_s=ran_s,
        )

    def _fill(self) -> None:
        producer = _producer(self._servers)
        for number in range(self._keys):
            _send(producer, number)
        assert producer.flush(FILL_TIMEOUT_S) == 0

    @contextmanager
    def _steady_input(self) -> Iterator[None]:
        is_over = threading.Event()
        dice = Random(self._dice.random())

        def run() -> None:
            producer = _producer(self._servers)
            while not is_over.wait(TICK_S):
                _send(producer, dice.randrange(self._keys))
            producer.flush(30)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def _pipeline(folder: Path) -> Path:
    """One window of a day holds every key, and each change of one is written at once."""
    file = folder / "pipeline.yaml"
    file.write_text(
        f"""\
apiVersion: onceflow/v1
name: {NAME}
sources:
  views:
    kafka: {{topics: [{INPUT}]}}
    format: json
    schema: "page STRING, ms BIGINT, at TIMESTAMP"
    event_time: at
    lateness: 5 seconds
query: |
  SELECT page, window.start AS start, count(*) AS views, sum(ms) AS total_ms, max(at) AS newest
  FROM views GROUP BY page, window(at, '1 day')
sink:
  kafka: {{topic: {OUTPUT}, partitions: 1, key: page}}
  emit: updates
checkpoint: {folder / "checkpoint"}
"""
    )
    return file


def _producer(bootstrap_servers: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 2,
        }
    )


def _send(producer: Producer, number: int) -> None:
    row = {
        "page": f"/a-page-with-a-name-of-some-length/{number}",
        "ms": 7,
        "at": f"{DAY}T12:00:00Z",
    }
    producer.produce(INPUT, json.dumps(row).encode())
    producer.poll(0)


def _newest(service: Service, event: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for each in service.of_kind(event):
        merged |= each
    return merged
