"""The funnel without Spark and Kafka: `pytest test_visits.py`."""

from datetime import UTC, datetime, timedelta

from visits import Funnel

from onceflow.processing import ProcessorHarness

START = datetime(2026, 11, 2, 8, tzinfo=UTC)


def action(minute, kind):
    return {"user": "u", "kind": kind, "at": START + timedelta(minutes=minute)}


def ends(*actions):
    harness = ProcessorHarness(
        Funnel,
        "user string, kind string, at timestamp",
        event_time="at",
        lateness="1 minute",
        when="watermark",
    )
    harness.send(*actions)
    harness.advance(START + timedelta(hours=2))
    return [(row["last_step"], (row["at"] - START) // timedelta(minutes=1)) for row in harness.rows]


def test_a_user_who_pays_in_time():
    assert ends(action(0, "view"), action(5, "cart"), action(29, "pay")) == [("pay", 29)]


def test_a_user_who_pays_too_late():
    assert ends(action(0, "view"), action(5, "cart"), action(30, "pay")) == [("cart", 30)]


def test_steps_count_in_their_order():
    assert ends(action(0, "view"), action(1, "pay"), action(2, "cart")) == [("cart", 30)]
