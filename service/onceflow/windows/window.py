"""The base of windows: a processor whose output follows from the results that it declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

from onceflow.columns import Columns, Scalar, Type, parse_type
from onceflow.errors import ConfigError, Fault
from onceflow.processing import List, Processor, Value
from onceflow.processing.state import LiveList, LiveT, LiveValue, State, duration
from onceflow.windows.result import Result, Together


class Window(Processor):
    """Base of windows. Results are attributes of the class.

    A row has the columns of the key, `window_start`, `window_end`, and a column for each result.

    Attributes:
        ttl: how long what is kept for a key lives after its last record, in event time.
    """

    ttl: ClassVar[str | None] = None

    @classmethod
    def output_for(cls, columns: Columns, keys: Sequence[str]) -> str:
        """Columns of the key, the window, and the results."""
        faults = [*cls.faults(), *_faults_of_input(cls, columns, keys)]
        if faults:
            raise ConfigError("window refused", subject=cls.__name__, faults=tuple(faults))
        types = columns.by_name
        names = [name for name in keys if name in types]
        key = Columns(tuple(names), tuple(types[name] for name in names))
        times = "window_start timestamp, window_end timestamp"
        return ", ".join(filter(None, [key.columns_ddl, times, cls.together().columns.columns_ddl]))

    @classmethod
    def faults(cls) -> Iterator[Fault]:
        """Attributes of the class that cannot be used so."""
        if cls.output:
            yield Fault(
                "a window has no `output` of its own",
                cls.__name__,
                suggestion="Leave it out: its columns are the key, window_start, window_end and the"
                " results.",
            )
        results = results_of(cls)
        if not results:
            yield Fault(
                "a window without results",
                cls.__name__,
                expected='one at least, such as `total = Result(Sum("bigint"), of="amount")`',
            )
        own = [each for each in cls.__mro__ if each.__module__.startswith("onceflow.")]
        for name in results:
            if any(name in vars(each) for each in own):
                yield Fault(f"a result cannot be called `{name}`", cls.__name__)

    @classmethod
    def together(cls) -> Together:
        """All results as one aggregate."""
        return _together(cls)

    def row(self, key: Any, start: datetime, end: datetime, totals: Any) -> tuple[Any, ...]:
        """A row of the output."""
        keys = key if isinstance(key, tuple) else (key,)
        return *keys, start, end, *self.together().result(totals)


def results_of(kind: type[Window]) -> dict[str, Result]:
    """The results that a class declares, with those of its bases, in order."""
    found: dict[str, Result] = {}
    for base in reversed(kind.__mro__):
        found |= {name: each for name, each in vars(base).items() if isinstance(each, Result)}
    return found


@lru_cache(maxsize=256)
def _together(kind: type[Window]) -> Together:
    return Together(results_of(kind))


def _faults_of_input(kind: type[Window], columns: Columns, keys: Sequence[str]) -> Iterator[Fault]:
    for name, each in results_of(kind).items():
        yield from each.faults(f"{kind.__name__}.{name}", columns)
    types = columns.by_name
    for name in keys:
        if name in types and not isinstance(types[name], Scalar):
            yield Fault(
                f"`{name}` is {types[name].ddl}",
                "key",
                expected="columns without parts",
                suggestion="Select the parts in a query as `input`.",
            )


def number_faults(kind: type[Window], name: str, least: int) -> Iterator[Fault]:
    """Why an attribute is not a whole number that is large enough."""
    number = getattr(kind, name, None)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        found = "nothing" if number is None else repr(number)
        expected = f"a whole number from {least} on"
        yield Fault(f"{name} is {found}", kind.__name__, expected=expected)


def duration_faults(kind: type[Window], name: str) -> Iterator[Fault]:
    """Why an attribute is not a duration, or is none of any length."""
    try:
        if duration(name, getattr(kind, name, None)) > timedelta():
            return
        text = f"{name} is nothing; expected more, such as `10 minutes`"
    except ValueError as error:
        text = str(error)
    yield Fault(text, kind.__name__)


def ttl_faults(kind: type[Window], instead: str) -> Iterator[Fault]:
    """A time to live where windows end by themselves."""
    if kind.ttl is not None:
        text = f"Leave it out: {instead}."
        yield Fault(f"{kind.__name__} can have no `ttl`", kind.__name__, suggestion=text)


class _OfResults(State[LiveT]):
    """State whose type is known only for the class that declares results.

    It names `{totals}`, the accumulators of the results, and `{value}`, what they take of a record.
    """

    kind: type[Any]

    def of(self, kind: type[Processor]) -> Self:
        made = type(self)(self._type, ttl=getattr(kind, "ttl", None))
        made.name, made.kind = self.name, kind
        return made

    @cached_property
    def type(self) -> Type:
        together = self.kind.together()
        return parse_type(self._type.format(totals=together.accumulator, value=together.input))


class Kept(_OfResults[LiveValue], Value):
    """A value whose type depends on the results."""


class KeptList(_OfResults[LiveList], List):
    """A list whose type depends on the results."""
