"""Piles of fetched messages keep the order of the log and lose nothing that is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from onceflow_connectors.kafka import inbox as inboxes
from onceflow_connectors.kafka.inbox import Inbox, records_of, trouble_of

HERE, THERE = ("clicks", 0), ("clicks", 1)
END = KafkaError(KafkaError._PARTITION_EOF)
TROUBLE = KafkaError(KafkaError._TRANSPORT)


@dataclass(frozen=True)
class Fetched:
    """The part of confluent_kafka's Message that an inbox looks at; that one can't be made."""

    number: int
    raised: KafkaError | None = None

    def error(self) -> KafkaError | None:
        return self.raised


@pytest.fixture(autouse=True)
def _message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inboxes, "Message", Fetched)


def messages(*errors: KafkaError | None) -> list[Any]:
    return [Fetched(number, error) for number, error in enumerate(errors)]


def test_messages_of_one_partition_are_taken_in_order_and_once() -> None:
    inbox = Inbox(10)
    first, second, third = messages(None, END, None)
    inbox.add(HERE, [first, second])
    inbox.add(THERE, messages(None))
    inbox.add(HERE, [third])
    assert inbox.take(HERE) == [first, second, third]
    assert inbox.take(HERE) == []


def test_what_is_put_back_comes_before_what_has_come_since() -> None:
    inbox = Inbox(10)
    first, second, third = messages(None, None, None)
    inbox.add(HERE, [third])
    inbox.put_back(HERE, [first, second])
    assert inbox.take(HERE) == [first, second, third]


def test_a_trouble_is_taken_alone() -> None:
    inbox = Inbox(10)
    pile = messages(None, END, TROUBLE, None, TROUBLE)
    inbox.add(HERE, pile)
    taken = [inbox.take(HERE) for _ in range(5)]
    assert taken == [pile[:2], pile[2:3], pile[3:4], pile[4:], []]


def test_what_does_not_fit_is_dropped_from_the_end_and_is_told() -> None:
    inbox = Inbox(3)
    pile = messages(None, None, None, None)
    inbox.add(HERE, pile[:3])
    assert not inbox.has_overflowed
    inbox.add(HERE, pile[3:])
    inbox.add(THERE, pile[:1])
    assert inbox.has_overflowed
    assert inbox.take(HERE) == pile[:3]
    inbox.clear()
    assert not inbox.has_overflowed
    assert inbox.take(THERE) == []


def test_events_are_no_records_and_only_some_are_troubles() -> None:
    record, end, trouble = messages(None, END, TROUBLE)
    assert records_of([record, end, trouble]) == [record]
    assert [trouble_of(message) for message in (record, end, trouble)] == [None, None, TROUBLE]
