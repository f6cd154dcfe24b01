"""The inventory without Spark and Kafka: `pytest test_stock.py`."""

from datetime import UTC, datetime, timedelta

from stock import Stock

from onceflow.processing import ProcessorHarness

START = datetime(2026, 11, 3, 6, tzinfo=UTC)


def movement(minute, quantity):
    return {"item": "bolt", "quantity": quantity, "at": START + timedelta(minutes=minute)}


def test_what_takes_too_much_is_rejected_and_changes_nothing():
    harness = ProcessorHarness(
        Stock, "item string, quantity bigint, at timestamp", event_time="at", on_reject="drop"
    )
    rows = harness.send(movement(0, 5), movement(1, -7), movement(2, -5))
    assert [row["stock"] for row in rows] == [5, 0]
    assert "ValueError: 7 taken, 5 there" in harness.rejected[0]
