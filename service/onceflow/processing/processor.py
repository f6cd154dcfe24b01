"""Base class of processors: handles the records of one key, with state and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar

from onceflow.columns import Columns
from onceflow.processing.state import Live, State

Row = Mapping[str, Any] | Sequence[Any]
"""An output row: by name, or in the order of the columns."""


class Timers:
    """The timers of the key in hand. At most one for each time and name.

    Args:
        handled: whether the class has `on_timer`.
    """

    def __init__(
        self,
        pending: Iterable[tuple[datetime, str]],
        clock: Callable[[], datetime],
        *,
        handled: bool = True,
    ) -> None:
        self._pending = set(pending)
        self._clock = clock
        self._handled = handled

    def at(self, time: datetime, name: str = "") -> None:
        """Have `on_timer` called once the event watermark has passed a time.

        Args:
            time: with a time zone; after `Processor.now`.
            name: handed to `on_timer`.

        Raises:
            ValueError: the time has no zone, or is not after the event time in hand; or the class
                has no `on_timer`.
        """
        if not self._handled:
            raise ValueError(f"timer {name!r}: expected a class with `on_timer`")
        if time.tzinfo is None:
            raise ValueError(f"timer {name!r}: expected a time with a zone, found {time}")
        time = time.astimezone(UTC)
        now = self._clock()
        if time <= now:
            raise ValueError(f"timer {name!r}: expected a time after {now}, found {time}")
        self._pending.add((time, name))

    def cancel(self, name: str = "") -> None:
        """Forget the timers of this name."""
        self._pending = {(time, other) for time, other in self._pending if other != name}

    def pending(self, name: str | None = None) -> Sequence[tuple[datetime, str]]:
        """Time and name of each timer, or of those of one name, earliest first."""
        return sorted(each for each in self._pending if name is None or each[1] == name)

    def earliest(self) -> tuple[datetime, str] | None:
        """The earliest timer; for the runner."""
        return min(self._pending, default=None)

    def pop_due(self, until: datetime) -> tuple[datetime, str] | None:
        """Take the earliest timer, if it is at or before a time; for the runner."""
        due = self.earliest()
        if due is None or due[0] > until:
            return None
        self._pending.discard(due)
        return due


class _Declarations(dict[str, Any]):
    """A class's body; a second state of the same name would silently replace the first."""

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, State) and name in self:
            self.setdefault("_twice", []).append(name)
        super().__setitem__(name, value)


class _ProcessorType(type):
    """Notices what is declared twice."""

    @classmethod
    def __prepare__(cls, *_: Any, **__: Any) -> _Declarations:
        return _Declarations()


class Processor(metaclass=_ProcessorType):
    """Base class of processors. An object lives for one key and one call of the engine.

    Whatever is to be remembered is declared as state, and constants are written into the class.
    Attributes cannot be set on an object, in `__init__` neither, so that nothing seems to be kept
    and is not.

    Attributes:
        key: columns of the input that records are grouped by, unless the pipeline file says so.
        output: columns of the rows that are yielded, unless the pipeline file says so.
        null_keys: whether records with a null in their key are handled, as GROUP BY does.
        timers: of the key in hand.
        parameters: values by name, as of the batch.
    """

    key: ClassVar[str | Sequence[str]] = ()
    output: ClassVar[str] = ""
    null_keys: ClassVar[bool] = False
    timers: Timers
    parameters: Mapping[str, Any]
    live: Mapping[str, Live]
    clock: Callable[[], datetime]

    @classmethod
    def output_for(cls, columns: Columns, keys: Sequence[str]) -> str:
        """Columns of the rows that are yielded, for an input and its keys.

        Raises:
            ConfigError: the class does not fit the input.
        """
        return cls.output

    @property
    def now(self) -> datetime:
        """Event time in hand: of the record last taken from `records`, or of the timer."""
        return self.clock()

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(getattr(type(self), name, None), State):
            # The declaration refuses it, and says what to do.
            object.__setattr__(self, name, value)
        kind = type(self).__name__
        raise AttributeError(
            f"{kind}.{name} cannot be set: an object is made for each key and batch, and forgotten;"
            f" declare state, such as `{name} = Value(...)`, in the class"
        )

    def on_records(self, key: Any, records: Iterable[Any]) -> Iterable[Row] | None:
        """Handle records of a key; yield output rows.

        Args:
            key: the value of its column; a tuple of values if there are several columns.
            records: in the order of event time, topic, partition and offset. Columns are
                attributes of a record.
        """
        raise NotImplementedError(f"{type(self).__name__} has no on_records")

    def on_initial(self, key: Any, rows: Iterable[Any]) -> None:
        """Set state and timers before the first record of any key; give no rows.

        Event time begins at the first rows' own: at that of their column with the name of the
        input's event time; without one, at 1970, so that nothing can have a time to live.

        Args:
            key: as for `on_records`.
            rows: of the initial state for this key, in the order of the file.
        """
        raise NotImplementedError(f"{type(self).__name__} has no on_initial")

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterable[Row] | None:
        """Handle a timer; yield output rows."""
        raise NotImplementedError(f"{type(self).__name__} sets timers and has no on_timer")


def handles_timers(kind: type[Processor]) -> bool:
    """Whether a class has `on_timer`."""
    return kind.on_timer is not Processor.on_timer


@lru_cache(maxsize=256)
def declared_state(kind: type[Processor]) -> Mapping[str, State[Any]]:
    """The state that a class declares, with that of its bases, in order."""
    found: dict[str, State[Any]] = {}
    for base in reversed(kind.__mro__):
        found |= {n: each.of(kind) for n, each in vars(base).items() if isinstance(each, State)}
    return found


def declared_twice(kind: type[Processor]) -> Sequence[str]:
    """Names of state that a class declares more than once."""
    bases = [base for base in kind.__mro__ if issubclass(base, Processor)]
    names = [name for base in bases for name, v in vars(base).items() if isinstance(v, State)]
    within = [name for base in bases for name in vars(base).get("_twice", ())]
    return sorted({*within, *(name for name in names if names.count(name) > 1)})
