"""Records as a processor sees them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias, overload

Record: TypeAlias = Any
"""A named tuple of the input's columns. `_` and its place stand for a name that Python refuses."""


@lru_cache(maxsize=64)
def record_type(names: tuple[str, ...]) -> Callable[[Iterable[Any]], Record]:
    """How a row becomes a record."""
    kind: Any = namedtuple("Record", list(names), rename=True)  # type: ignore[misc]
    # Its own `_make`, without a call of Python for each record.
    return partial(tuple.__new__, kind)


class Records(Sequence[Record]):
    """The records of a call. Taking one by iteration moves the event time in hand."""

    def __init__(self, records: Sequence[Record], take: Callable[[Record], None]) -> None:
        self._records = records
        self._take = take

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            self._take(record)
            yield record

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        return self._records[place]
