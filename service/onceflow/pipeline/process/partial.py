"""Partial aggregation: a task folds its own rows before they go to the tasks of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.aggregates import Aggregate
from onceflow.columns import Scalar, Type, parse_type
from onceflow.errors import RecordError
from onceflow.pipeline.process.rows import Key, to_batch, values_of

MAX_GROUPS = 5_000
"""That a task holds before it sends them on. More rows leave it then; results are the same."""
MAX_SHOWN = 200
"""Characters of a value that a message shows."""


@dataclass(frozen=True)
class Partial:
    """Folds the rows of a task by key. Goes to the workers by pickle.

    Args:
        keys: how many columns the key has. After them comes a column for each aggregate.
        names: of the aggregates, for messages.
        aggregates: in the order of their columns.
        output: the key's columns, and an accumulator for each aggregate.
    """

    keys: int
    names: Sequence[str]
    aggregates: Sequence[Aggregate]
    output: pa.Schema

    def partial_aggregates(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Accumulators by key; a key may come several times."""
        held: dict[Key, list[Any]] = {}
        for batch in filter(len, batches):
            self._fold(held, pa.Table.from_batches([batch]))
            if len(held) >= MAX_GROUPS:
                yield self._batch(held)
                held = {}
        if held:
            yield self._batch(held)

    def _fold(self, held: dict[Key, list[Any]], table: pa.Table) -> None:
        columns = [values_of(table, name) for name in table.column_names]
        keys = list(zip(*columns[: self.keys], strict=True))
        for key in keys:
            if key not in held:
                held[key] = [each.zero() for each in self.aggregates]
        for place, aggregate in enumerate(self.aggregates):
            kind, value = parse_type(aggregate.input), None
            try:
                for key, given in zip(keys, columns[self.keys + place], strict=True):
                    value = given if isinstance(kind, Scalar) else kind.check(given)
                    held[key][place] = aggregate.add(held[key][place], value)
            except Exception as error:
                raise self._failed(place, f"value {value!r}", error) from error

    def _batch(self, held: dict[Key, list[Any]]) -> pa.RecordBatch:
        types = [parse_type(each.accumulator) for each in self.aggregates]
        rows = [
            (*key, *(self._kept(place, types[place], acc) for place, acc in enumerate(accs)))
            for key, accs in held.items()
        ]
        return to_batch(rows, self.output)

    def _kept(self, place: int, kind: Type, acc: Any) -> Any:
        try:
            return kind.check(acc)
        except ValueError as error:
            raise self._failed(place, f"accumulator {acc!r}", error) from error

    def _failed(self, place: int, on: str, error: Exception) -> RecordError:
        return RecordError(
            f"the aggregate {self.names[place]} failed",
            subject=f"{type(self.aggregates[place]).__name__}, {on[:MAX_SHOWN]}",
            found=f"{type(error).__name__}: {error}"[:MAX_SHOWN],
            then="stopping; nothing of this batch was written; correct it, or leave such values out"
            " of the query",
        )
