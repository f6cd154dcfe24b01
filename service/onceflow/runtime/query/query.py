"""The running query: starts it, watches it, drains it. Wraps what Spark calls StreamingQuery."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from onceflow.clock import Clock
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import ConfigError, InvariantError, OnceflowError, require
from onceflow.protocol.ledger import HeadEntry
from onceflow.runtime.batch.batch import BatchRunner, DrainRequestedError
from onceflow.runtime.batch.executed import Execution, ExecutionReader
from onceflow.runtime.checkpoint.checkpoint import Checkpoint
from onceflow.runtime.spark.errors import CANNOT_LOAD, cannot_load, from_text, innermost, text_of
from onceflow.runtime.spark.jvm import UNREACHABLE, require_spark

WATCH_INTERVAL_S = 0.2
"""How often a running query is looked at: quick enough for a drain and for a display."""
MAX_NAMED = 3
"""Damaged files that a refusal names."""
CUT_OFF_TIMEOUT_S = 30.0
"""For Spark to cancel a batch that takes too long."""
START_TIMEOUT_S = 60.0
"""For Spark to hand out the query object before its first batch may end."""


class QueryHandle:
    """The query, for code that Spark calls before `start()` has returned it."""

    def __init__(self, reader: ExecutionReader) -> None:
        self._reader = reader
        self._query: StreamingQuery | None = None
        self._is_set = threading.Event()

    def set(self, query: StreamingQuery) -> None:
        """Hand it in."""
        self._query = query
        self._is_set.set()

    def query(self) -> StreamingQuery:
        """Spark's own object, when it has handed it out."""
        require(
            self._is_set.wait(START_TIMEOUT_S),
            "Spark hands out a query that it started",
        )
        assert self._query is not None  # noqa: S101  for the type checker only
        return self._query

    def read_execution(self) -> Execution:
        """Read what the batch that has just run did; for use inside `foreachBatch`."""
        return self._reader.read(self.query())


def start_query(
    stream: DataStreamWriter, checkpoint: Checkpoint, runner: BatchRunner, handle: QueryHandle
) -> StreamingQuery:
    """Start a query with `runner` as its sink.

    Raises:
        ConfigError: Spark refuses the query.
    """
    writer = stream.foreachBatch(runner).option("checkpointLocation", checkpoint.location)
    try:
        query = writer.start()
    except PySparkException as error:
        ours = from_text(text_of(error))
        raise ours or ConfigError(
            "Spark refuses the query",
            subject=runner.head.pipeline,
            found=str(error).splitlines()[0],
        ) from error
    handle.set(query)
    return query


class RunningQuery:
    """A started query and what it takes to end it well."""

    def __init__(
        self,
        query: StreamingQuery,
        runner: BatchRunner,
        checkpoint: Checkpoint,
        clock: Clock,
        max_batch_s: float,
    ) -> None:
        self._query = query
        self._runner = runner
        self._checkpoint = checkpoint
        self._clock = clock
        self._seen_batch = -1
        self._max_batch_s = max_batch_s
        self._computing: int | None = None
        self._computed_until = clock.within(max_batch_s)

    @property
    def head(self) -> HeadEntry:
        """Position of the ledger after the last batch."""
        return self._runner.head

    def watch(
        self,
        is_drain_requested: Callable[[], bool],
        on_tick: Callable[[Any], None],
        watches: Sequence[Callable[[], None]],
    ) -> None:
        """Wait until the query ends by itself or a drain is requested.

        Every WATCH_INTERVAL_S, `on_tick` gets Spark's newest progress, or None, and `watches`
        are called; an error of one stops the query.

        Raises:
            OnceflowError: what ended the query, if it failed.
        """
        while not is_drain_requested():
            try:
                # Spark takes fractions, although its annotation says int.
                is_over = self._query.awaitTermination(WATCH_INTERVAL_S)  # type: ignore[arg-type]
            except StreamingQueryException as error:
                self._raise_unless_drained(error)
                return
            progress = self._query.lastProgress
            if progress is not None and progress.batchId > self._seen_batch:
                self._seen_batch = progress.batchId
                reach(CrashPoint.AFTER_SPARK_COMMIT)
            on_tick(progress)
            if is_over:
                # A context that is stopped ends its queries as if they had caught up.
                require_spark()
                return
            self._check_duration()
            try:
                for look in watches:
                    look()
            except OnceflowError:
                self._stop_quietly()
                raise

    def _check_duration(self) -> None:
        """Cut off a batch that is computed for too long.

        Raises:
            ConfigError: it was.
        """
        computing = self._runner.computing
        if computing is None or computing != self._computing:
            self._computing = computing
            self._computed_until = self._clock.within(self._max_batch_s)
        elif self._computed_until.is_over:
            # Its result is not to be written any more, should there be one.
            self._runner.gate.close(0)
            self._stop_within(CUT_OFF_TIMEOUT_S)
            raise ConfigError(
                "a batch takes too long",
                subject=f"batch {computing}",
                expected=f"at most {self._max_batch_s:g} s (spark.max_batch_s)",
                then="it was cancelled and nothing of it was written; lower"
                " max_records_per_batch, change the query, or raise the limit",
            )

    def _stop_within(self, timeout_s: float) -> None:
        """Stop, but do not wait for a thread of Spark that nothing can interrupt."""
        thread = threading.Thread(target=self._stop_quietly, name="cut-off", daemon=True)
        thread.start()
        thread.join(timeout_s)

    def _stop_quietly(self) -> None:
        with suppress(*UNREACHABLE, PySparkException):
            self._query.stop()

    def drain(self, timeout_s: float) -> bool:
        """Let the running batch commit everywhere, begin no other, stop.

        Returns:
            False if the running batch did not end in time; it was cut off and will be replayed.
        """
        deadline = self._clock.within(timeout_s)
        is_idle = self._runner.gate.close(deadline.remaining_s())
        while is_idle and not self._is_logged() and not deadline.is_over:
            self._clock.sleep(WATCH_INTERVAL_S / 10)
        self._query.stop()
        return is_idle

    def _is_logged(self) -> bool:
        """Whether Spark has nothing left to write for the last batch that we committed."""
        return not self._query.isActive or self._checkpoint.is_done(
            self._runner.head.batch.batch_id
        )

    def _raise_unless_drained(self, error: Exception) -> None:
        text = text_of(error)
        ours: OnceflowError | None = self._runner.failure or from_text(text)
        if ours is None and DrainRequestedError.__name__ in str(error):
            return
        raise self._named(ours, innermost(text)) from error

    def _named(self, ours: OnceflowError | None, found: str) -> OnceflowError:
        """Spark does not always say which file, nor that it was one of the state at all."""
        if ours is not None and (ours.what != CANNOT_LOAD or ours.subject):
            return ours
        damaged = self._checkpoint.damaged_state_files()
        if damaged:
            return cannot_load(", ".join(damaged[:MAX_NAMED]), found)
        if ours is not None:
            return cannot_load(self._checkpoint.state_path, ours.found)
        return InvariantError("the query failed", found=found, then="nothing further was written")
