"""Handles one key of one processor at a time. The same code runs in Spark's workers and harness.

What is handled in a call: the key's timers that are due, and its new records, merged by event time.
With `when: watermark`, records first wait in the key's state until the event watermark has passed
them, and those of one event time are handled together; then nothing depends on how records were cut
into batches.
"""

from __future__ import annotations

import json
import sys
import traceback
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from onceflow.columns import Columns, Scalar
from onceflow.errors import RecordError
from onceflow.processing.codec import WAKES, Codec, state_schema
from onceflow.processing.parameters import NONE, Parameters
from onceflow.processing.processor import Processor, Row, Timers, declared_state, handles_timers
from onceflow.processing.records import Record, Records, record_type
from onceflow.processing.state import Live

When: TypeAlias = Literal["arrival", "watermark"]
Key: TypeAlias = tuple[Any, ...]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_STATE_BYTES = 16 * 2**20
"""Of one key. The state of a key is read and written whole."""
_MS = timedelta(milliseconds=1)
MAX_TIMERS = 1_000_000
"""That go off in one call. More is a timer that sets itself again, too close to itself."""
MAX_SHOWN = 200
"""Characters of a key, a record or an error that a message shows."""
NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})
PLACE = ("_topic", "_partition", "_offset")
"""Columns that say which record a row is, if the input has them."""


@dataclass(frozen=True, slots=True)
class Handled:
    """The outcome of a call.

    Args:
        state: to keep; None if there is nothing to keep.
        rows: of the output, in its order; the last column is null, or names a rejected record.
        wake_before_ms: the timer that the key had before the call, if any.
        wake_ms: the one that it must have now: event time in Unix milliseconds.
    """

    state: bytes | None
    rows: Sequence[tuple[object, ...]]
    wake_before_ms: int | None
    wake_ms: int | None


@dataclass(frozen=True)
class Runner:
    """A processor with everything that its results depend on. Goes to the workers by pickle.

    Args:
        name: of the step, for messages.
        kind: the user's class.
        columns: of the input.
        keys: names of those that records are grouped by.
        time: name of the one with the event time.
        output: columns of the rows that come out.
        first: columns that decide the order of records with the same event time before others do.
        when: whether records wait until the event watermark has passed them.
        keeps_going: whether a record that fails is rejected; if not, it ends the batch.
        earlier: schemas of states that were written before the class was changed.
        parameters: those that the pipeline declares.
        initial_columns: of the rows of the initial state; None if there is none.
        initial: those rows, until each worker has been given them.
    """

    name: str
    kind: type[Processor]
    columns: Columns
    keys: tuple[str, ...]
    time: str
    output: Columns
    first: tuple[str, ...] = ()
    when: When = "arrival"
    keeps_going: bool = False
    earlier: tuple[Any, ...] = ()
    parameters: Parameters = NONE
    initial_columns: Columns | None = None
    initial: bytes | None = None

    @property
    def initial_names(self) -> tuple[str, ...]:
        """Names of the columns of the initial state."""
        return self.initial_columns.names if self.initial_columns else ()

    def handle(
        self,
        key: Key,
        state: bytes | None,
        rows: Sequence[tuple[Any, ...]],
        event_watermark_ms: int,
        parameters: Mapping[str, Any] = NO_PARAMETERS,
    ) -> Handled:
        """Handle what is due and new for a key.

        Args:
            key: values of the key's columns.
            state: as the last call returned it; None for a key without one.
            rows: of this key, sorted by the columns of `order_columns`; empty when its timer went
                off.
            event_watermark_ms: the event watermark of the batch.
            parameters: values by name, as of the batch.

        Raises:
            RecordError: the processor failed; names class, key and record. Nothing is kept.
            CorruptionError: the state cannot be read.
        """
        event_watermark = EPOCH + timedelta(milliseconds=event_watermark_ms)
        records = list(map(self.record, self._checked(rows)))
        try:
            return Call(self, key, event_watermark, parameters).run(state, records)
        except FailedError as failure:
            if not self.keeps_going or failure.record is None:
                raise self.told(key, failure) from failure.__cause__
        try:
            return _CarefulCall(self, key, event_watermark, parameters).run(state, records)
        except FailedError as failure:
            raise self.told(key, failure) from failure.__cause__

    def _checked(self, rows: Sequence[tuple[Any, ...]]) -> Iterable[Sequence[Any]]:
        """Rows with structs as named tuples; Spark has dicts for them."""
        nested = [
            (place, kind)
            for place, kind in enumerate(self.columns.types)
            if not isinstance(kind, Scalar)
        ]
        if not nested:
            return rows
        changed = [list(row) for row in rows]
        for row in changed:
            for place, kind in nested:
                row[place] = kind.check(row[place])
        return changed

    @cached_property
    def record(self) -> Callable[[Sequence[Any]], Record]:
        """Make a record, as the user sees it, of a row."""
        return record_type(self.columns.names)

    @cached_property
    def time_at(self) -> int:
        """Place of the event time among the columns."""
        return self.columns.names.index(self.time)

    @cached_property
    def codec(self) -> Codec:
        """State of a key as bytes: a field for each declared state, and our own."""
        declared = declared_state(self.kind)
        waiting = self.columns if self.when == "watermark" else None
        ends = any(each.ttl is not None for each in declared.values())
        wakes = ends or handles_timers(self.kind) or waiting is not None
        schema = state_schema(declared, waiting, wakes=wakes)
        return Codec(schema, self.earlier)

    @cached_property
    def may_wake(self) -> bool:
        """Whether a key may have a timer, also one of an earlier class."""
        return any(each.get(WAKES, True) for each in (self.codec.schema, *self.earlier))

    def view(self, content: bytes, now: datetime) -> dict[str, Any]:
        """State of a key, by name: a value, a list, or a dict."""
        state = self.codec.decode(content)
        declared = declared_state(self.kind).items()
        return {name: each.view(state.get(name), now) for name, each in declared}

    def timers(self, content: bytes) -> Sequence[tuple[datetime, str]]:
        """Time and name of each timer that is kept for a key, earliest first."""
        return [(each["at"], each["name"]) for each in self.codec.decode(content)["_timers"]]

    @cached_property
    def order_columns(self) -> Sequence[str]:
        """Columns that the records of a key are sorted by. No two different records are equal."""
        rest = PLACE if self.has_places else self.columns.names
        return list(dict.fromkeys([self.time, *self.first, *rest]))

    @cached_property
    def order(self) -> Callable[[Sequence[Any]], Any]:
        """Sort key of rows."""
        places = [self.columns.names.index(name) for name in self.order_columns]
        if self.has_places and not self.first:
            return itemgetter(*places)
        return lambda row: [_sortable(row[place]) for place in places]

    @cached_property
    def key_of(self) -> Callable[[Sequence[Any]], Key]:
        """The key of a row."""
        places = [self.columns.names.index(name) for name in self.keys]
        if len(places) > 1:
            return itemgetter(*places)
        return lambda row: (row[places[0]],)

    @cached_property
    def has_places(self) -> bool:
        """Whether the input tells which record a row is."""
        return set(PLACE) <= set(self.columns.names)

    @cached_property
    def declared(self) -> Mapping[str, Any]:
        """Declared state as JSON, for a comparison with what it was before."""
        found = {name: each.declared() for name, each in declared_state(self.kind).items()}
        waiting = {"kind": "waiting", "type": self.columns.columns_ddl}
        return {**found, "_waiting": waiting} if self.when == "watermark" else found

    def place_of(self, record: Record) -> Mapping[str, Any]:
        """Which record it is; empty if the input does not tell."""
        names = self.columns.names
        return {n[1:]: record[names.index(n)] for n in PLACE} if self.has_places else {}

    def row_of(self, record: Record) -> Mapping[str, Any]:
        """The columns of a record, but for those of its place."""
        pairs = zip(self.columns.names, record, strict=True)
        return {name: value for name, value in pairs if name not in PLACE}

    def told(self, key: Key, failure: FailedError) -> RecordError:
        """The error of a pipeline, for one of the class."""
        names = dict(zip(self.keys, key, strict=True))
        where = (
            ""
            if failure.record is None
            else f", record {_shown(self.place_of(failure.record) or self.row_of(failure.record))}"
        )
        return RecordError(
            f"the processor {self.kind.__name__} failed",
            subject=f"step {self.name}, key {_shown(names)}{where}",
            found=failure.text[:MAX_SHOWN],
            then=failure.then,
        )


class FailedError(Exception):
    """The user's class failed on a record; None if it was a timer."""

    def __init__(self, record: Record | None, text: str, then: str = "") -> None:
        super().__init__(text)
        self.record = record
        self.text = text
        self.then = (
            then or "stopping; nothing of this batch was written; correct it, or see `on_reject`"
        )


class Call:
    """One call of `Runner.handle`."""

    def __init__(
        self, runner: Runner, key: Key, event_watermark: datetime, parameters: Mapping[str, Any]
    ) -> None:
        self.runner = runner
        self.key = key
        self.event_watermark = event_watermark
        # One mapping serves many keys: what a processor wrote there would be state.
        self.parameters = MappingProxyType(parameters)
        self.now = event_watermark
        self.in_hand: Record | None = None
        self.rows: list[tuple[object, ...]] = []
        self.live: Mapping[str, Live] = {}
        self.timers = Timers((), self.clock)

    def clock(self) -> datetime:
        """Event time in hand."""
        return self.now

    def take(self, record: Record) -> None:
        """Have a record in hand, and its event time."""
        self.in_hand = record
        self.now = record[self.runner.time_at]

    def run(self, content: bytes | None, records: list[Record]) -> Handled:
        """Handle what is due and new, from a key's state as it is kept."""
        runner = self.runner
        state = {} if content is None else runner.codec.decode(content)
        self.load(state)
        records = self._accepted(records)
        later: list[Record] = []
        if runner.when == "watermark":
            records, later = self._passed(state, records)
        self._handle_all(records)
        return self.ended(state, later)

    def load(self, state: Mapping[str, Any]) -> None:
        """Take state and timers in hand."""
        declared = declared_state(self.runner.kind)
        self.live = {n: each.live(state.get(n), self.clock) for n, each in declared.items()}
        pending = [(each["at"], each["name"]) for each in state.get("_timers", ())]
        self.timers = Timers(pending, self.clock, handled=handles_timers(self.runner.kind))

    def _accepted(self, records: list[Record]) -> list[Record]:
        """Those that can be handled: they have a key and an event time."""
        at = self.runner.time_at
        if None in self.key and records and not self.runner.kind.null_keys:
            names = [n for n, v in zip(self.runner.keys, self.key, strict=True) if v is None]
            self._refuse_all(records, f"the key is null: {', '.join(names)}")
            return []
        # They are sorted by event time, nulls first.
        timeless = sum(1 for _ in takewhile(lambda each: each[at] is None, records))
        self._refuse_all(records[:timeless], "the event time is null")
        return records[timeless:] if timeless else records

    def _refuse_all(self, records: Sequence[Record], text: str) -> None:
        if records:
            raise FailedError(records[0], text)

    def _passed(
        self, state: Mapping[str, Any], records: list[Record]
    ) -> tuple[list[Record], list[Record]]:
        """Records that the watermark has passed, and those that wait for it."""
        runner, at = self.runner, self.runner.time_at
        of_row = runner.columns.from_avro
        waiting = [runner.record(of_row(each)) for each in state.get("_waiting", ())]
        together = sorted([*waiting, *records], key=runner.order)
        passed = [each for each in together if each[at] <= self.event_watermark]
        return passed, together[len(passed) :]

    def _handle_all(self, records: list[Record]) -> None:
        """Handle records and due timers, merged by time."""
        done = timers = 0
        at = self.runner.time_at
        while True:
            until = self.event_watermark
            if done < len(records):
                until = min(until, records[done][at])
            due = self.timers.pop_due(until)
            if due is not None:
                timers += 1
                self._call_timer(*due, timers)
            elif done < len(records):
                group = records[done : self._end_of_group(records, done)]
                self._call_records(group)
                done += len(group)
            else:
                return

    def _end_of_group(self, records: list[Record], start: int) -> int:
        """Where the records end that are handled in the same call as the first."""
        at = self.runner.time_at
        if self.runner.when == "watermark":
            return bisect_right(records, records[start][at], start, key=itemgetter(at))
        due = self.timers.earliest()
        if due is None or due[0] > self.event_watermark:
            return len(records)
        return bisect_left(records, due[0], start, key=itemgetter(at))

    def _call_records(self, records: Sequence[Record]) -> None:
        self.take(records[0])
        processor = self.processor()
        self._collect(lambda: processor.on_records(self.plain_key, Records(records, self.take)))

    def _call_timer(self, at: datetime, name: str, count: int) -> None:
        self.in_hand, self.now = None, at
        if count > MAX_TIMERS:
            text = f"more than {MAX_TIMERS} timers went off at once; the last is {name!r} at {at}"
            raise FailedError(None, text, "stopping; set timers further apart")
        processor = self.processor()
        self._collect(lambda: processor.on_timer(self.plain_key, at, name))

    @property
    def plain_key(self) -> Any:
        """The key as the user sees it."""
        return self.key[0] if len(self.key) == 1 else self.key

    def processor(self) -> Processor:
        """An object for one call."""
        processor = self.runner.kind()
        own = {"live": self.live, "timers": self.timers, "parameters": self.parameters}
        vars(processor).update(own, clock=self.clock)
        return processor

    def _collect(self, call: Callable[[], Iterable[Row] | None]) -> None:
        check = self.runner.output.check
        try:
            for row in call() or ():
                checked = check(row)
                self.rows.append((*checked, None))
        except Exception as error:
            text = f"{type(error).__name__}: {error}{line_of(error, self.runner.kind)}"
            raise FailedError(self.in_hand, text) from error

    def _stored(self, later: Sequence[Record]) -> dict[str, Any]:
        to_avro, check = self.runner.columns.to_avro, self.runner.columns.check
        pending = self.timers.pending()
        state = {name: each.stored() for name, each in self.live.items()}
        state["_timers"] = [{"at": at, "name": name} for at, name in pending]
        if self.runner.when == "watermark":
            state["_waiting"] = [to_avro(check(tuple(each))) for each in later]
        return state

    def _wake_ms(self, later: Sequence[Record]) -> int | None:
        """When there is something to do: for a timer, a record that waits, or a value that ends."""
        at = self.runner.time_at
        times = [each[at] for each in later[:1]]
        if due := self.timers.earliest():
            times.append(due[0])
        # What has ended is not stored, and a timer at the one that goes off would be lost with it.
        ends = (end for each in self.live.values() for end in each.expiries())
        times += [end for end in ends if end > self.now]
        return -((EPOCH - min(times)) // _MS) if times else None

    def ended(self, before: Mapping[str, Any], later: Sequence[Record]) -> Handled:
        """Put down what is kept."""
        self.now = max(self.now, self.event_watermark)
        state, woke_ms = self._stored(later), before.get("_wake_ms")
        # Values of 0, false or '' are kept.
        nothing = {name: each.nothing for name, each in self.live.items()}
        if all(each == nothing.get(name, []) for name, each in state.items()):
            return Handled(None, self.rows, woke_ms, None)
        wake_ms = self._wake_ms(later)
        content = self._encoded({**state, "_wake_ms": wake_ms})
        return Handled(content, self.rows, woke_ms, wake_ms)

    def _encoded(self, state: Mapping[str, Any]) -> bytes:
        try:
            content = self.runner.codec.encode(state)
        except (ValueError, TypeError, AttributeError) as error:
            # What a handler took out of its state, changed, and did not put back.
            text = f"its state cannot be stored: {error}"
            raise FailedError(self.in_hand, text) from error
        if len(content) > MAX_STATE_BYTES:
            sizes = {name: len(str(value)) for name, value in state.items()}
            largest = max(sizes, key=lambda name: sizes[name])
            text = f"its state has {len(content)} bytes, most of them in {largest}"
            remedy = (
                f"keep at most {MAX_STATE_BYTES} bytes for a key: drop what is old, or set a `ttl`"
            )
            raise FailedError(self.in_hand, text, f"nothing of this batch was written; {remedy}")
        return content


class _CarefulCall(Call):
    """The same again; a record that fails is rejected and changes nothing.

    Records that were to be handled together and failed are handled one at a time.
    """

    def _refuse_all(self, records: Sequence[Record], text: str) -> None:
        for each in records:
            self._reject(each, text)

    def _call_records(self, records: Sequence[Record]) -> None:
        self.take(records[0])  # What is stored leaves out what is too old by the time in hand.
        before, count = self._stored(()), len(self.rows)
        try:
            super()._call_records(records)
            self._encoded({**self._stored(()), "_wake_ms": None})
        except FailedError as failure:
            del self.rows[count:]
            self.load(before)
            if len(records) == 1:
                self._reject(records[0], failure.text)
            else:
                for record in records:
                    self._call_records([record])

    def _reject(self, record: Record, text: str) -> None:
        told = {
            **self.runner.place_of(record),
            "row": self.runner.row_of(record),
            "text": f"{self.runner.kind.__name__}: {text}"[:MAX_SHOWN],
        }
        nothing = [None] * len(self.runner.output.names)
        self.rows.append((*nothing, json.dumps(told, default=str, sort_keys=True)))


def line_of(error: Exception, kind: type[Processor]) -> str:
    """The line of the user's file that an error comes from."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" (line {lines[-1]} of {Path(file).name})" if lines and file else ""


def _sortable(value: Any) -> Any:
    """Sorts nulls first and NaN last, and values with parts by their text."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and value != value:  # noqa: PLR0124  NaN
        return (2, 0)
    return (1, repr(value) if isinstance(value, tuple | list | dict) else value)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
