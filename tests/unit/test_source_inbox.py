"""Piles of fetched messages keep the order of the log and lose nothing that is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from onceflow_connectors.kafka.source import inbox as inboxes
from onceflow_connectors.kafka.source.inbox import Inbox, records_of, trouble_of

HERE, THERE = ("clicks", 0), ("clicks", 1)
SIZE, PLENTY = 100, 1_000_000
END = KafkaError(KafkaError._PARTITION_EOF)
TROUBLE = KafkaError(KafkaError._TRANSPORT)


@dataclass(frozen=True)
class Fetched:
    """The part of confluent_kafka's Message that an inbox looks at; that one can't be made."""

    number: int
    raised: KafkaError | None = None

    def __len__(self) -> int:
        return SIZE

    def error(self) -> KafkaError | None:
        return self.raised


@pytest.fixture(autouse=True)
def _message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inboxes, "Message", Fetched)


def messages(*errors: KafkaError | None) -> list[Any]:
    return [Fetched(number, error) for number, error in enumerate(errors)]


def test_messages_of_one_partition_are_taken_in_order_and_once() -> None:
    inbox = Inbox(10, PLENTY)
    first, second, third = messages(None, END, None)
    inbox.add(HERE, [first, second])
    inbox.add(THERE, messages(None))
    inbox.add(HERE, [third])
    assert inbox.take(HERE) == [first, second, third]
    assert inbox.take(HERE) == []


def test_what_is_put_back_comes_before_what_has_come_since() -> None:
    inbox = Inbox(10, PLENTY)
    first, second, third = messages(None, None, None)
    inbox.add(HERE, [third])
    inbox.put_back(HERE, [first, second])
    assert inbox.take(HERE) == [first, second, third]


def test_a_trouble_is_taken_alone() -> None:
    inbox = Inbox(10, PLENTY)
    pile = messages(None, END, TROUBLE, None, TROUBLE)
    inbox.add(HERE, pile)
    taken = [inbox.take(HERE) for _ in range(5)]
    assert taken == [pile[:2], pile[2:3], pile[3:4], pile[4:], []]


def test_a_pile_that_something_did_not_fit_on_gets_nothing_more_and_says_so() -> None:
    """What was added later would look as if it followed."""
    inbox = Inbox(3, PLENTY)
    pile = messages(*[None] * 6)
    inbox.add(HERE, pile[:2])
    assert not inbox.is_cut_off(HERE)
    inbox.add(HERE, pile[2:4])
    assert inbox.is_cut_off(HERE)
    assert not inbox.is_cut_off(THERE)
    assert inbox.take(HERE) == pile[:3]
    inbox.add(HERE, pile[4:])
    assert inbox.take(HERE) == []
    inbox.clear()
    assert not inbox.is_cut_off(HERE)
    inbox.add(HERE, pile[:1])
    assert inbox.take(HERE) == pile[:1]


def test_what_is_put_back_may_leave_no_room() -> None:
    inbox = Inbox(3, PLENTY)
    pile = messages(*[None] * 7)
    inbox.add(HERE, pile[3:5])
    inbox.put_back(HERE, pile[:3])
    inbox.add(HERE, pile[5:])
    assert inbox.is_cut_off(HERE)
    assert inbox.take(HERE) == pile[:5]


def test_payloads_that_wait_are_bounded_except_of_what_is_read_now() -> None:
    inbox = Inbox(10, 2 * SIZE)
    pile = messages(*[None] * 6)
    inbox.awaited = HERE
    inbox.add(THERE, pile[:1])
    inbox.add(HERE, pile[:4])
    inbox.add(THERE, pile[1:2])
    assert (inbox.is_cut_off(HERE), inbox.is_cut_off(THERE)) == (False, True)
    assert inbox.take(HERE) == pile[:4]
    # What was taken makes room for others.
    inbox.clear()
    inbox.add(THERE, pile[:2])
    assert inbox.take(THERE) == pile[:2]
    inbox.add(THERE, pile[2:3])
    inbox.put_back(THERE, pile[:2])
    inbox.add(THERE, pile[3:])
    assert inbox.is_cut_off(THERE)
    assert inbox.take(THERE) == pile[:3]


def test_events_are_no_records_and_only_some_are_troubles() -> None:
    record, end, trouble = messages(None, END, TROUBLE)
    assert records_of([record, end, trouble]) == [record]
    assert [trouble_of(message) for message in (record, end, trouble)] == [None, None, TROUBLE]
