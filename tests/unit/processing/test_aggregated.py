"""State that an aggregate keeps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceflow.aggregates import Count, Histogram, Sum
from onceflow.errors import ConfigError
from onceflow.processing import Aggregated, Processor, ProcessorHarness
from onceflow.processing.evolution import compare_state

START = datetime(2026, 1, 1, tzinfo=UTC)
INPUT = "card string, amount double, at timestamp"


class Totals(Processor):
    key = "card"
    total = Aggregated(Sum("double"), ttl="1 hour")
    count = Aggregated(Count("double"))
    output = "card string, total double, n bigint"

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for record in records:
            if record.amount == -1:
                self.count.clear()
            else:
                self.total.add(record.amount)
                self.count.add(record.amount)
        self.count.merge(1)
        yield key, self.total.result(), self.count.result()


def _record(amount: float | None, minutes: int) -> dict[str, object]:
    return {"card": "a", "amount": amount, "at": START + timedelta(minutes=minutes)}


def test_is_kept_between_batches_cleared_and_ends() -> None:
    harness = ProcessorHarness(Totals, INPUT, event_time="at")
    (first,) = harness.send(_record(1e308, 0), _record(1e308, 1))
    assert first == {"card": "a", "total": float("inf"), "n": 3}
    (second,) = harness.send(_record(-1e308, 2), _record(None, 3))
    assert second == {"card": "a", "total": 1e308, "n": 5}
    assert harness.state("a") == {"total": 1e308, "count": 5}
    (third,) = harness.send(_record(-1.0, 200))
    assert third == {"card": "a", "total": None, "n": 1}


def test_a_value_of_another_type_is_refused() -> None:
    class Wrong(Totals):
        def on_records(self, key: Any, records: Any) -> Iterator[Any]:
            self.total.add("x")
            yield from ()

    harness = ProcessorHarness(Wrong, INPUT, event_time="at")
    with pytest.raises(Exception, match="expected double, found str 'x'"):
        harness.send(_record(1.0, 0))


@pytest.mark.parametrize(
    ("aggregate", "text"),
    [
        (1, "expected an onceflow.aggregates.Aggregate, found int"),
        (Count("strin"), "strin"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(aggregate: Any, text: str) -> None:
    class Wrong(Totals):
        count = Aggregated(aggregate)

    with pytest.raises(ConfigError) as refused:
        ProcessorHarness(Wrong, INPUT, event_time="at")
    assert text in str(refused.value) + str(refused.value.faults)


def test_state_of_another_aggregate_is_refused() -> None:
    old = {"bins": Aggregated(Histogram("int", [1])).declared()}
    new = {"bins": Aggregated(Histogram("int", [2])).declared()}
    found = compare_state(old, new)
    assert found.refused == [
        "bins: a Histogram(1) aggregate cannot become a Histogram(2) aggregate"
    ]
    assert not compare_state(old, old).refused


def test_a_sum_in_other_units_is_refused() -> None:
    def declared(number: str) -> Any:
        return {"total": Aggregated(Sum(number)).declared()}

    found = compare_state(declared("decimal(10,2)"), declared("decimal(11,3)"))
    assert found.refused == ["total: a Sum(1/100) aggregate cannot become a Sum(1/1000) aggregate"]
    assert compare_state(declared("bigint"), declared("double")).refused
    assert not compare_state(declared("int"), declared("bigint")).refused
