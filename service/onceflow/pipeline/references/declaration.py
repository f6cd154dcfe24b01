"""The declaration of a reference, and the rules for it. Needs no Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from onceflow.columns import Columns, Scalar, parse_columns
from onceflow.errors import Fault

SUFFIXES = (".csv", ".jsonl", ".parquet")
"""Of files that can be read."""
VALID_UNTIL = "valid_until"
"""Column that a table with `valid_from` has besides."""
_TIMES = ("timestamp", "date")


@dataclass(frozen=True)
class Reference:
    """A declared reference.

    Args:
        ddl: its columns.
        key: those of them that name a row; with `valid_from`, rows of one key follow each other.
        valid_from: column with the time from which on a row is valid.
    """

    ddl: str
    key: tuple[str, ...]
    valid_from: str | None = None

    @cached_property
    def columns(self) -> Columns:
        """The columns as they are declared.

        Raises:
            ConfigError: the DDL is none.
        """
        return parse_columns(self.ddl)

    @property
    def table_columns(self) -> Columns:
        """The columns as queries see them."""
        if self.valid_from is None:
            return self.columns
        until = self.columns.by_name[self.valid_from]
        return Columns((*self.columns.names, VALID_UNTIL), (*self.columns.types, until))

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that no two rows have in common."""
        return self.key if self.valid_from is None else (*self.key, self.valid_from)

    def faults(self) -> Iterator[Fault]:
        """Find what does not fit together, each with the key of its block in `where`.

        Raises:
            ConfigError: the DDL is none.
        """
        known = self.columns.by_name
        for name in self.key:
            if name not in known:
                yield Fault(f"the schema has no column `{name}`", "key", expected=_one_of(known))
            elif not isinstance(known[name], Scalar):
                yield Fault(f"`{name}` is {known[name].ddl}", "key", expected="one value")
        if self.valid_from is None:
            return
        if self.valid_from not in known:
            what = f"the schema has no column `{self.valid_from}`"
            yield Fault(what, "valid_from", expected=_one_of(known))
        elif known[self.valid_from].ddl not in _TIMES:
            what = f"`{self.valid_from}` is {known[self.valid_from].ddl}"
            yield Fault(what, "valid_from", expected=" or ".join(_TIMES))
        if VALID_UNTIL in {name.casefold() for name in known}:
            what = f"the name `{VALID_UNTIL}` is kept for the end of what is valid"
            yield Fault(what, "schema", expected="another name")


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"
