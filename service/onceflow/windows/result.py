"""Results of windows: aggregates over columns of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from keyword import iskeyword
from operator import attrgetter
from typing import Any

from onceflow.aggregates import Aggregate
from onceflow.columns import Columns, Type, parse_type
from onceflow.errors import Fault, unknown_name
from onceflow.processing.evolution import widens


class Result:
    """One column of a window's rows.

    Args:
        aggregate: of `onceflow.aggregates`, or one of your own.
        of: the column of the records that it takes; several for an aggregate of structs, in the
            order of the fields.

    Raises:
        ConfigError: the aggregate has a type that is not known.
        ValueError: it is not an aggregate, or takes another number of columns.
    """

    def __init__(self, aggregate: Aggregate, of: str | Sequence[str]) -> None:
        if not isinstance(aggregate, Aggregate):
            found = type(aggregate).__name__
            raise ValueError(f"expected an onceflow.aggregates.Aggregate, found {found}")  # noqa: TRY004
        self.aggregate = aggregate
        self.of = (of,) if isinstance(of, str) else tuple(of)
        self.input = parse_type(aggregate.input)
        self.accumulator = parse_type(aggregate.accumulator)
        self.output = parse_type(aggregate.output)
        self.types: tuple[Type, ...] = (self.input,)
        if len(self.of) != 1 and isinstance(self.input, Columns):
            self.types = self.input.types
        if len(self.of) != len(self.types):
            wanted = f"{len(self.types)} columns for {aggregate.input}"
            raise ValueError(f"{aggregate.name}: expected {wanted}, found {', '.join(self.of)}")
        self._get: Callable[[Any], Any] = attrgetter(*self.of)

    def value(self, record: Any) -> Any:
        """The value that the aggregate takes of a record."""
        return self.input.check(self._get(record))

    def faults(self, where: str, columns: Columns) -> Iterator[Fault]:
        """Why it cannot be computed for an input."""
        types = columns.by_name
        for name, wanted in zip(self.of, self.types, strict=True):
            if name not in types:
                fault = unknown_name("no column of the input is called", name, columns.names)
                yield replace(fault, where=where)
            elif not name.isidentifier() or iskeyword(name) or name.startswith("_"):
                yield Fault(
                    f"`{name}` is not a name in Python",
                    where,
                    suggestion="Give the column another name in a query as `input`.",
                )
            elif not widens(types[name], wanted):
                yield Fault(
                    f"{self.aggregate.name} takes {wanted.ddl}, and `{name}` is {types[name].ddl}",
                    where,
                    suggestion="Declare the aggregate for this type, or cast the column in a query"
                    " as `input`.",
                )


class Together(Aggregate):
    """Several results of the same records, as one aggregate.

    Args:
        results: by name.
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        self.results = tuple(results.values())
        self._parts = tuple(each.aggregate for each in self.results)
        # With the name of the aggregate: the accumulator of another one is not taken for its own.
        kept = tuple(f"{name}: {each.aggregate.name}" for name, each in results.items())
        self.input = Columns(kept, tuple(each.input for each in self.results)).ddl
        self.accumulator = Columns(kept, tuple(each.accumulator for each in self.results)).ddl
        outputs: tuple[Type, ...] = tuple(each.output for each in self.results)
        self.columns = Columns(tuple(results), outputs)
        self.output = self.columns.ddl

    def value(self, record: Any) -> tuple[Any, ...]:
        """The value of each result for a record."""
        return tuple(each.value(record) for each in self.results)

    def _known(self, acc: Any) -> Iterator[Any]:
        """Accumulators; one of a result that was added to the class later is null."""
        for part, each in zip(self._parts, acc, strict=True):
            yield part.zero() if each is None else each

    def zero(self) -> tuple[Any, ...]:  # noqa: D102
        return tuple(part.zero() for part in self._parts)

    def add(self, acc: Any, value: Any) -> Any:  # noqa: D102
        if value is None:
            return acc
        parts = zip(self._parts, self._known(acc), value, strict=True)
        return tuple(part.add(each, new) for part, each, new in parts)

    def merge(self, a: Any, b: Any) -> tuple[Any, ...]:  # noqa: D102
        parts = zip(self._parts, self._known(a), self._known(b), strict=True)
        return tuple(part.merge(one, other) for part, one, other in parts)

    def subtract(self, acc: Any, value: Any) -> Any:  # noqa: D102
        if value is None:
            return acc
        parts = zip(self._parts, self._known(acc), value, strict=True)
        return tuple(part.subtract(each, old) for part, each, old in parts)

    @property
    def can_subtract(self) -> bool:
        """Whether all of them can take values back."""
        return all(part.can_subtract for part in self._parts)

    def result(self, acc: Any) -> tuple[Any, ...]:  # noqa: D102
        parts = zip(self._parts, self._known(acc), strict=True)
        return tuple(part.result(each) for part, each in parts)
