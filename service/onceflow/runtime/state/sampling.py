"""Samples of the state: taken while a query runs, compared before it goes on after a restart.

What is sampled is read from the files of the checkpoint, as a restart will read them. A batch whose
replay, or whose files, gave the query another state is found by this, at the latest after as many
samples as there are partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from onceflow.clock import Clock
from onceflow.contracts.observer import Report
from onceflow.errors import NEW_GENERATION, CorruptionError, OnceflowError
from onceflow.protocol.state_sample import StateSample
from onceflow.runtime.state.layout import Operator
from onceflow.runtime.state.reader import StateReader

MS_A_BATCH = 4.0
"""What samples may take for each batch, on average: long ones are taken less often."""


class StateSampler:
    """Samples one partition after another, in a thread of its own.

    Attributes:
        newest: the newest sample.
        rows: of the whole state, by the newest sample of each partition. One that was not sampled
            yet counts as the others of its operator do on average; None without any sample.
    """

    def __init__(
        self, reader: StateReader, clock: Clock, report: Report, newest: StateSample | None = None
    ) -> None:
        self.newest = newest
        self.rows: int | None = None
        self._rows: dict[tuple[int, int], int] = {}
        self._operators: Sequence[Operator] = ()
        self._reader = reader
        self._clock = clock
        self._report = report
        self._next_batch = 0
        self._last: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, "state-sampler")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    @property
    def is_busy(self) -> bool:
        """Whether a sample is being taken."""
        return self._last is not None and not self._last.done()

    def begin(self, batch_id: int) -> None:
        """Begin to sample the state after a batch that is done, if a sample is due."""
        if batch_id >= self._next_batch and not self.is_busy:
            self._last = self._thread.submit(self._take, batch_id)

    def _take(self, batch_id: int) -> None:
        began_s = self._clock.monotonic_s()
        try:
            self.newest = next_sample(self._reader, batch_id, self.newest) or self.newest
            self._count()
        except OnceflowError as error:
            self._report("warning", text=f"the state was not sampled: {error}")
        finally:
            self._reader.close()
        took_ms = 1000 * (self._clock.monotonic_s() - began_s)
        self._next_batch = batch_id + 1 + round(took_ms / MS_A_BATCH)

    def _count(self) -> None:
        if self.newest is None:
            return
        self._rows[self.newest.operator, self.newest.partition] = self.newest.rows
        rows = 0.0
        # They stay while a query runs: their files need not be read for each sample.
        self._operators = self._operators or self._reader.layout.operators()
        for operator in self._operators:
            known = [
                count for (number, _), count in self._rows.items() if number == operator.operator_id
            ]
            rows += operator.partitions * sum(known) / max(1, len(known))
        self.rows = round(rows)


def next_sample(reader: StateReader, batch_id: int, last: StateSample | None) -> StateSample | None:
    """Sample the partition whose turn it is after that of `last`; None if there is no state."""
    places = [
        (operator, partition)
        for operator in reader.layout.operators()
        for partition in range(len(reader.layout.unique_ids(operator, batch_id)))
    ]
    if not places:
        return None
    named = [(operator.operator_id, partition) for operator, partition in places]
    before = (last.operator, last.partition) if last else None
    turn = named.index(before) + 1 if before in named else 0
    return _sample(reader, *places[turn % len(places)], batch_id)


def require_same(reader: StateReader, recorded: StateSample) -> str | None:
    """Compare the state with a sample of before. One that Spark keeps no more is not compared.

    Returns:
        Why it could not be read, or None. A start goes on then: what is missing may be a file that
        Spark does not need, and if it needs one, it names it.

    Raises:
        CorruptionError: it is another.
    """
    if not reader.layout.is_done(recorded.batch_id):
        return None
    subject = (
        f"partition {recorded.partition} of operator {recorded.operator} as of batch"
        f" {recorded.batch_id}"
    )
    try:
        operator = reader.operator(str(recorded.operator))
        found = _sample(reader, operator, recorded.partition, recorded.batch_id)
    except Exception as error:  # noqa: BLE001  a damaged file may say anything
        return f"{subject}: {error}"
    if found != recorded:
        raise _differs(subject, recorded, str(found))
    return None


def _sample(reader: StateReader, operator: Operator, partition: int, batch_id: int) -> StateSample:
    found = reader.digest(operator, batch_id, [partition])
    digest = f"{found.total % 2**64:016x}"
    return StateSample(batch_id, operator.operator_id, partition, found.rows, digest)


def _differs(subject: str, recorded: StateSample, found: str) -> CorruptionError:
    return CorruptionError(
        "the state is not the one that was left",
        subject=subject,
        expected=f"{recorded}, as `head` in the ledger says",
        found=found,
        then="halting, since results would be others; restore the checkpoint with all of its"
        f" files, or {NEW_GENERATION}",
    )
