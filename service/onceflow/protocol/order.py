"""The order in which a batch writes its records to each output partition, as `head` records it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_TERM = re.compile(
    r"(?:`(?P<quoted>[^`]+)`|(?P<plain>[^\s`]+))(?:\s+(?P<direction>asc|desc))?", re.IGNORECASE
)


class Ties(StrEnum):
    """The order of rows that are equal in every other term."""

    ARRIVAL = "arrival"
    """By source, input partition and offset of their input."""
    CONTENT = "content"
    """By the bytes of the key, then of the value; null first."""


@dataclass(frozen=True)
class Term:
    """One column to order by.

    Args:
        column: of the result, or `column.field` of a struct.
        is_descending: exactly the reverse: null comes last.
    """

    column: str
    is_descending: bool = False

    @classmethod
    def parse(cls, text: str) -> Term:
        """Read `column`, `column desc`, or the same with the column in backquotes.

        Raises:
            ValueError: the text has another form.
        """
        found = _TERM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"no column to order by: {text}")
        is_descending = (found["direction"] or "asc").lower() == "desc"
        return cls(found["quoted"] or found["plain"], is_descending)

    def __str__(self) -> str:
        name = f"`{self.column}`" if re.search(r"\s", self.column) else self.column
        return f"{name} desc" if self.is_descending else name


@dataclass(frozen=True)
class Order:
    """A total order of the rows of a batch, the same at every replay.

    Rows are ordered within their output partition: by the terms, then as `ties` says. Rows that are
    still equal have the same bytes, or keep the order of their input.
    """

    by: tuple[Term, ...] = ()
    ties: Ties = Ties.CONTENT

    def to_json(self) -> Mapping[str, Any]:
        """Encode as JSON values."""
        return {"by": [str(term) for term in self.by], "ties": self.ties.value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Order:
        """Inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: not written by `to_json`.
        """
        return cls(tuple(map(Term.parse, value["by"])), Ties(value["ties"]))

    def by_content(self) -> Order:
        """The same order for rows whose arrival cannot be reproduced."""
        return Order(self.by, Ties.CONTENT)

    def __str__(self) -> str:
        return ", ".join([*map(str, self.by), self.ties.value])


SORTED = Order()
"""By content alone: the order of every batch whose `head` has none."""
ARRIVAL = Order(ties=Ties.ARRIVAL)


def columns_of(orders: Sequence[Order]) -> Iterator[str]:
    """Every column that one of these orders uses, once."""
    yield from dict.fromkeys(term.column for order in orders for term in order.by)
