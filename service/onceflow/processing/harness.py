"""Runs a processor without Spark, in milliseconds: for tests of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import compress
from operator import not_
from typing import Any

from onceflow.columns import parse_columns
from onceflow.contracts.values import parse_duration_ms
from onceflow.processing.checks import make_runner
from onceflow.processing.initial import begin, by_key
from onceflow.processing.processor import Processor
from onceflow.processing.runner import EPOCH, NO_PARAMETERS, PLACE, Key, When

TOPIC = "harness"
_PLACE_COLUMNS = "_topic string, _partition int, _offset bigint"


class ProcessorHarness:
    """One processor, its state, and an event clock that stands still until it is moved.

    A call of `send` is a batch of the engine: late records are left out, records of a key come in
    order, state is stored and read again, and then the event watermark moves, and due timers go
    off. The same code handles records here and in Spark.

    Args:
        kind: the class.
        columns: of the input, as Spark SQL declares them. Records are numbered as they come, unless
            `_topic string, _partition int, _offset bigint` are among them.
        event_time: the column with the event time.
        lateness: how far behind the newest event time a record may be.
        key: instead of the class's.
        output: instead of the class's.
        order: as in the pipeline file.
        when: as in the pipeline file.
        on_reject: `fail` raises the error of a record; `drop` keeps it in `rejected`.
        parameters: values that the processor reads by name.
        initial: rows of the initial state.
        initial_columns: theirs, as in the pipeline file.

    Attributes:
        event_watermark: event time that has passed.
        rows: everything that came out, in order.
        rejected: for each record that the processor failed on, which it was and why, as JSON.
        late: records that came after the watermark had passed them.

    Raises:
        ConfigError: the class cannot be used so; says everything that is wrong with it.
    """

    def __init__(  # noqa: PLR0913  the choices of a step in the pipeline file
        self,
        kind: type[Processor],
        columns: str,
        *,
        event_time: str,
        lateness: str = "0 ms",
        key: str | Sequence[str] | None = None,
        output: str | None = None,
        order: Sequence[str] = (),
        when: When = "arrival",
        on_reject: str = "fail",
        parameters: Mapping[str, Any] = NO_PARAMETERS,
        initial: Sequence[Mapping[str, Any]] = (),
        initial_columns: str = "",
    ) -> None:
        self._columns = parse_columns(columns)
        self._has_places = set(PLACE) <= {*self._columns.names}
        places = "" if self._has_places else f", {_PLACE_COLUMNS}"
        declared = parse_columns(columns + places)
        self._runner = make_runner(
            kind,
            name=kind.__name__,
            columns=declared,
            key=key,
            output=output,
            order=order,
            time=event_time,
            when=when,
            keeps_going=on_reject != "fail",
            initial=initial_columns,
        )
        self._lateness = timedelta(milliseconds=parse_duration_ms(lateness))
        self.parameters = dict(parameters)
        self._states: dict[Key, bytes] = {}
        self._wakes: dict[Key, int] = {}
        self._late_before = self.event_watermark = EPOCH
        self._newest = EPOCH
        self._offset = 0
        self.rows: list[dict[str, Any]] = []
        self.rejected: list[str] = []
        self.late: list[Mapping[str, Any]] = []
        if first := self._runner.initial_columns:
            self._begin([tuple(first.check(row)) for row in initial])

    def _begin(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for key, of_key in by_key(self._runner, rows).items():
            handled = begin(self._runner, key, None, of_key, 0, self.parameters)
            _set(self._states, key, handled.state)
            _set(self._wakes, key, handled.wake_ms)

    def send(self, *records: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Handle a batch of records, by column name; then move the watermark, and run what is due.

        Returns:
            The rows that came out.

        Raises:
            RecordError: the processor failed on a record. Nothing of this batch is kept.
            ValueError: a record has other columns than the input.
        """
        came = len(self.rows)
        rows = [self._row(record) for record in records]
        self._run(rows)
        if rows:
            self.advance(self._newest - self._lateness)
        return self.rows[came:]

    def advance(self, time: datetime) -> list[dict[str, Any]]:
        """Let event time pass without records; what is due goes off.

        Returns:
            The rows that came out.
        """
        came = len(self.rows)
        time = time.astimezone(UTC)
        time = time.replace(microsecond=time.microsecond // 1000 * 1000)
        if time > self.event_watermark:
            self._late_before, self.event_watermark = self.event_watermark, time
            self._run([])
        self._late_before = self.event_watermark
        return self.rows[came:]

    def state(self, *key: Any) -> dict[str, Any]:
        """State of a key, by name: the value, a list, or a dict. Empty if there is none."""
        content = self._states.get(key)
        return {} if content is None else self._runner.view(content, self.event_watermark)

    def timers(self, *key: Any) -> Sequence[tuple[datetime, str]]:
        """Time and name of each timer of a key, earliest first."""
        content = self._states.get(key)
        return () if content is None else self._runner.timers(content)

    @property
    def keys(self) -> Sequence[Key]:
        """Keys that have state."""
        return list(self._states)

    def _row(self, record: Mapping[str, Any]) -> Any:
        self._offset += 1
        values = self._columns.check(record)
        return (*values,) if self._has_places else (*values, TOPIC, 0, self._offset - 1)

    def _run(self, rows: list[Any]) -> None:
        """A batch: what is kept changes only if all of it went well."""
        runner = self._runner
        times = [row[runner.time_at] for row in rows]
        newest = max([self._newest, *filter(None, times)])
        kept = [at is None or at > self._late_before for at in times]
        late = [runner.record(row)._asdict() for row in compress(rows, map(not_, kept))]
        rows = list(compress(rows, kept))
        now_ms = (self.event_watermark - EPOCH) // timedelta(milliseconds=1)
        timeless, timed = [], rows
        if None in times:
            timeless = [row for row in rows if row[runner.time_at] is None]
            timed = [row for row in rows if row[runner.time_at] is not None]
        came = self._by_key([*timeless, *sorted(timed, key=runner.order)])
        woken = sorted(key for key, at_ms in self._wakes.items() if at_ms <= now_ms)
        handled = {
            key: runner.handle(key, self._states.get(key), rows, now_ms, self.parameters)
            for key, rows in {**dict.fromkeys(woken, ()), **came}.items()
        }
        self._newest = newest
        self.late += late
        for key, each in handled.items():
            _set(self._states, key, each.state)
            _set(self._wakes, key, each.wake_ms)
            self._emit(each.rows)

    def _by_key(self, rows: Sequence[Any]) -> Mapping[Key, Sequence[Any]]:
        key_of = self._runner.key_of
        found: dict[Key, list[Any]] = {}
        for row in rows:
            found.setdefault(key_of(row), []).append(row)
        return found

    def _emit(self, rows: Iterable[tuple[object, ...]]) -> None:
        names = self._runner.output.names
        for *values, rejected in rows:
            if rejected is None:
                self.rows.append(dict(zip(names, values, strict=True)))
            else:
                self.rejected.append(str(rejected))


def _set(kept: dict[Key, Any], key: Key, value: Any) -> None:
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value
