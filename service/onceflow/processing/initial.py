"""The first state of a key, which a processor makes of rows of its initial state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from onceflow.processing.records import Record, Records, record_type
from onceflow.processing.runner import (
    EPOCH,
    NO_PARAMETERS,
    Call,
    FailedError,
    Handled,
    Key,
    Runner,
    line_of,
)


def by_key(
    runner: Runner, rows: Iterable[tuple[Any, ...]]
) -> Mapping[Key, Sequence[tuple[Any, ...]]]:
    """Group rows of the initial state; those of a key stay in their order."""
    places = [runner.initial_names.index(name) for name in runner.keys]
    found: dict[Key, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(tuple(row[place] for place in places), []).append(row)
    return found


def begin(
    runner: Runner,
    key: Key,
    state: bytes | None,
    rows: Sequence[tuple[Any, ...]],
    event_watermark_ms: int,
    parameters: Mapping[str, Any] = NO_PARAMETERS,
) -> Handled:
    """Make the first state of a key; arguments as for `Runner.handle`.

    Raises:
        RecordError: the processor failed; names class and key.
    """
    make = record_type(runner.initial_names)
    event_watermark = EPOCH + timedelta(milliseconds=event_watermark_ms)
    try:
        first = _FirstCall(runner, key, event_watermark, parameters)
        return first.run(state, [make(row) for row in rows])
    except FailedError as failure:
        raise runner.told(key, failure) from failure.__cause__


class _FirstCall(Call):
    """Hands the rows over; nothing else is due."""

    def take(self, record: Record) -> None:
        names = self.runner.initial_names
        if self.runner.time in names:
            self.now = record[names.index(self.runner.time)] or self.now

    def run(self, content: bytes | None, records: list[Record]) -> Handled:
        self.load({})
        self.take(records[0])
        call: Callable[..., Any] = self.processor().on_initial
        try:
            if call(self.plain_key, Records(records, self.take)) is not None:
                raise TypeError("on_initial must not yield or return anything")  # noqa: TRY301
        except Exception as error:
            text = f"{type(error).__name__}: {error}{line_of(error, self.runner.kind)}"
            then = "stopping; nothing was written; correct the file or the class"
            raise FailedError(None, text, then) from error
        return self.ended({}, [])
