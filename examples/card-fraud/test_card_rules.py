"""The rules without Spark and Kafka: `pytest test_card_rules.py`."""

from datetime import UTC, datetime, timedelta

from card_rules import CardRules

from onceflow.processing import ProcessorHarness

START = datetime(2026, 11, 1, 9, tzinfo=UTC)
COLUMNS = "card string, shop string, amount double, at timestamp"


def payment(minute, amount, shop="bakery"):
    return {"card": "c", "shop": shop, "amount": amount, "at": START + timedelta(minutes=minute)}


def test_a_large_payment_after_a_trial():
    harness = ProcessorHarness(CardRules, COLUMNS, event_time="at", lateness="30 seconds")
    rows = harness.send(payment(0, 1.0), payment(1, 2000.0, "jeweller"))
    assert [row["rule"] for row in rows] == ["large after a trial"]


def test_a_trial_is_forgotten_after_two_minutes():
    harness = ProcessorHarness(CardRules, COLUMNS, event_time="at", lateness="30 seconds")
    assert harness.send(payment(0, 1.0), payment(2, 2000.0)) == []


def test_silence_is_noticed_once_event_time_has_passed_it():
    harness = ProcessorHarness(CardRules, COLUMNS, event_time="at", lateness="30 seconds")
    harness.send(payment(0, 50.0))
    rows = harness.advance(START + timedelta(hours=1))
    assert [row["rule"] for row in rows] == ["silent"]
