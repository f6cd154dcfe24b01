"""Initial state: what a class makes of the rows for a key, before its first record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceflow.errors import ConfigError, RecordError
from onceflow.processing import List, Processor, ProcessorHarness, Value

T0 = datetime(2026, 1, 1, tzinfo=UTC)
INPUT = "card string, amount int, at timestamp"
ROWS = "card string, balance int, at timestamp"


class Balance(Processor):
    key = "card"
    balance = Value("int", default=0)
    recent = List("int", ttl="10 s")
    output = "card string, balance int"

    def on_initial(self, key: Any, rows: Any) -> None:
        for row in rows:
            self.balance.set(self.balance.get() + row.balance)
            self.recent.append(row.balance)
            self.timers.at(row.at + timedelta(seconds=30), "quiet")

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for record in records:
            self.balance.set(self.balance.get() + record.amount)
            yield key, self.balance.get()

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        yield key, -self.balance.get()


def row(card: str | None, balance: int, second: int = 0) -> dict[str, Any]:
    return {"card": card, "balance": balance, "at": T0 + timedelta(seconds=second)}


def harness(kind: type[Processor], *rows: Any, columns: str = ROWS) -> ProcessorHarness:
    return ProcessorHarness(kind, INPUT, event_time="at", initial=rows, initial_columns=columns)


def test_state_and_timers_begin_with_the_rows_of_a_key_in_their_order() -> None:
    run = harness(Balance, row("a", 5), row("b", 7), row("a", 1, 8))
    assert run.state("a") == {"balance": 6, "recent": [5, 1]}
    run.send({"card": "a", "amount": 1, "at": T0 + timedelta(seconds=12)})
    assert run.rows == [{"card": "a", "balance": 7}]
    assert run.state("a") == {"balance": 7, "recent": [1]}


def test_a_key_without_records_has_its_timers() -> None:
    run = harness(Balance, row("b", 7))
    assert run.advance(T0 + timedelta(seconds=30)) == [{"card": "b", "balance": -7}]


class Gives(Balance):
    def on_initial(self, key: Any, rows: Any) -> Any:
        yield key, 1


class Fails(Balance):
    def on_initial(self, key: Any, rows: Any) -> None:
        self.balance.set("much")


@pytest.mark.parametrize(
    ("kind", "text"), [(Gives, "on_initial must not yield"), (Fails, "expected int, found str")]
)
def test_a_class_that_fails_is_named_with_its_key(kind: type[Processor], text: str) -> None:
    with pytest.raises(RecordError, match=text) as caught:
        harness(kind, row("a", 1))
    assert '"card": "a"' in str(caught.value)


class Plain(Processor):
    key = "card"
    output = "card string"

    def on_records(self, key: Any, records: Any) -> None:
        """Handle no record."""


@pytest.mark.parametrize(
    ("kind", "columns", "text"),
    [
        (Plain, ROWS, "Plain has no on_initial"),
        (Balance, "balance int", "the initial state has no `card` of type string"),
        (Balance, "card int, balance int", "the initial state has no `card` of type string"),
        (Balance, "card strin", "expected a type"),
    ],
)
def test_an_initial_state_that_does_not_fit_is_refused(
    kind: type[Processor], columns: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        harness(kind, columns=columns)
