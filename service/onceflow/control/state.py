"""Looks at the state of pipelines, one at a time: each reads files, and may read many."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from onceflow.clock import Clock
from onceflow.control.showing import MASK
from onceflow.errors import RetriableError
from onceflow.runtime.spark.session import SessionSettings, SharedEngine
from onceflow.runtime.state.reader import StateReader, opened_state, parse_key

GET_TIMEOUT_S = 10.0
"""For a key that is not given as a whole."""
FRESH_S = 10.0
"""A list is used again for this long: on S3, each takes many requests."""
TURN_S = 10.0
"""How long a look waits for the one before it."""


class StateDesk:
    """Reads state in Spark's JVM of this process. For several threads at once.

    It keeps the newest reader open, so that the next look finds most files in place.
    """

    def __init__(self, engine: SharedEngine, session: SessionSettings, clock: Clock) -> None:
        self._engine = engine
        self._session = session
        self._clock = clock
        self._turn = threading.Lock()
        self._location = ""
        self._kept = ExitStack()
        self._reader: StateReader | None = None
        self._listed: Sequence[Mapping[str, Any]] = ()
        self._listed_at_s = 0.0

    def operators(self, location: str) -> Sequence[Mapping[str, Any]]:
        """List what has state in a checkpoint, its columns, and the batches that can be read."""
        with self._open(location) as reader:
            is_fresh = self._clock.monotonic_s() - self._listed_at_s <= FRESH_S
            if not self._listed or not is_fresh:
                operators = reader.layout.operators()
                self._listed = [reader.describe(operator) for operator in operators]
                self._listed_at_s = self._clock.monotonic_s()
            return self._listed

    def rows(
        self,
        location: str,
        operator: str,
        key: Sequence[str],
        batch: int | None,
        most: int,
        shown: Collection[str],
    ) -> Mapping[str, Any]:
        """The rows of a key, with the values of columns that may be `shown`."""
        texts = parse_key(key)
        with self._open(location) as reader:
            found, as_of = reader.find(operator, batch)
            rows = reader.get(found, texts, as_of, self._clock.within(GET_TIMEOUT_S), most)
        masked = [{name: _masked(value, shown) for name, value in row.items()} for row in rows]
        return {"operator": found.name, "batch": as_of, "rows": masked}

    @contextmanager
    def _open(self, location: str) -> Iterator[StateReader]:
        if not self._turn.acquire(timeout=TURN_S):
            raise RetriableError(
                "another look at state takes long",
                expected=f"an end within {TURN_S:g} s",
                then="try again",
            )
        try:
            if self._reader is None or self._location != location:
                self._kept.close()
                self._reader, self._location, self._listed = None, location, ()
                opened = opened_state(location, self._session, self._engine.jvm())
                self._reader = self._kept.enter_context(opened)
            yield self._reader
        except Exception:
            self._kept.close()
            self._reader = None
            raise
        finally:
            self._turn.release()


def _masked(value: Any, shown: Collection[str]) -> Any:
    """A row's part without the values of other columns than those to be `shown`."""
    if not isinstance(value, dict):
        return value
    return {name: inner if name in shown else MASK for name, inner in value.items()}
