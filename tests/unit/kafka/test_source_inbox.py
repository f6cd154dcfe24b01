"""Piles of fetched messages keep the order of the log and lose nothing that is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from onceflow.errors import InvariantError
from onceflow_connectors.kafka.source import inbox as inboxes
from onceflow_connectors.kafka.source.inbox import Inbox, has_events, trouble_of

HERE, THERE = ("clicks", 0), ("clicks", 1)
SIZE, PLENTY = 100, 1_000_000
END = KafkaError(KafkaError._PARTITION_EOF)
TROUBLE = KafkaError(KafkaError._TRANSPORT)


@dataclass(frozen=True)
class Fetched:
    """The part of confluent_kafka's Message that an inbox looks at; that one can't be made."""

    number: int
    raised: KafkaError | None = None
    place: tuple[str, int] = HERE

    def __len__(self) -> int:
        return SIZE

    def error(self) -> KafkaError | None:
        return self.raised

    def offset(self) -> int:
        return self.number

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]


def fetched(number: int, raised: KafkaError | None = None) -> Any:
    return Fetched(number, raised)


@pytest.fixture(autouse=True)
def _message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inboxes, "Message", Fetched)


def messages(*errors: KafkaError | None, place: tuple[str, int] = HERE) -> list[Any]:
    return [Fetched(number, error, place) for number, error in enumerate(errors)]


def test_messages_of_one_partition_are_taken_in_order_and_once() -> None:
    inbox = Inbox(10, PLENTY)
    first, second, end, third = *messages(None, None), fetched(2, END), fetched(5)
    inbox.add(HERE, [first, second, end])
    inbox.add(THERE, messages(None, place=THERE))
    inbox.add(HERE, [third])
    assert inbox.take(HERE, 0, 9) == ([first, second, third], 6, None)
    assert inbox.take(HERE, 6, 9) == ([], 6, None)
    assert inbox.take(THERE, 0, 9).decided == 1


@pytest.mark.parametrize(
    ("start", "end", "taken", "decided"),
    [
        (0, 3, [0, 1, 2], 3),
        (2, 4, [2, 3], 4),
        (0, 9, [0, 1, 2, 3, 6], 8),
        (4, 6, [], 6),
        (7, 9, [], 8),
        (8, 9, [], 8),
    ],
)
def test_what_lies_in_a_range_is_taken_and_what_lies_after_it_is_kept(
    start: int, end: int, taken: list[int], decided: int
) -> None:
    """4 and 5 hold no record, nor does 7, which the end of the partition tells."""
    inbox = Inbox(10, PLENTY)
    pile = [*messages(None, None, None, None), fetched(6), fetched(8, END)]
    inbox.add(HERE, pile)
    records, reached, trouble = inbox.take(HERE, start, end)
    assert ([record.offset() for record in records], reached, trouble) == (taken, decided, None)
    inbox.add(HERE, [fetched(8)])
    left = inbox.take(HERE, end, 99)
    kept = [record.offset() for record in left.records]
    assert kept == [n for n in (0, 1, 2, 3, 6, 8) if n >= end]


def test_an_end_is_kept_for_the_range_after_it() -> None:
    inbox = Inbox(10, PLENTY)
    inbox.add(HERE, [fetched(0), fetched(4, END)])
    assert inbox.take(HERE, 0, 2).decided == 2
    assert inbox.take(HERE, 2, 4) == ([], 4, None)


def test_a_trouble_is_taken_alone() -> None:
    inbox = Inbox(10, PLENTY)
    pile = messages(None, None, TROUBLE, None, TROUBLE)
    inbox.add(HERE, pile)
    taken = [inbox.take(HERE, start, 9) for start in (0, 2, 2, 4, 4)]
    assert taken == [
        (pile[:2], 2, None),
        ((), 2, TROUBLE),
        (pile[3:4], 4, None),
        ((), 4, TROUBLE),
        ([], 4, None),
    ]


def test_a_pile_that_something_did_not_fit_on_gets_nothing_more_and_says_so() -> None:
    """Records that are added later would look as if they followed."""
    inbox = Inbox(3, PLENTY)
    pile = messages(*[None] * 6)
    inbox.add(HERE, pile[:2])
    assert not inbox.is_cut_off(HERE)
    inbox.add(HERE, pile[2:4])
    assert inbox.is_cut_off(HERE)
    assert not inbox.is_cut_off(THERE)
    assert inbox.take(HERE, 0, 9).records == pile[:3]
    inbox.add(HERE, pile[4:])
    assert inbox.take(HERE, 3, 9) == ([], 3, None)
    inbox.clear()
    assert not inbox.is_cut_off(HERE)
    inbox.add(HERE, pile[:1])
    assert inbox.take(HERE, 0, 9).records == pile[:1]


def test_payloads_that_wait_are_bounded_except_of_what_is_read_now() -> None:
    inbox = Inbox(10, 2 * SIZE)
    pile, others = messages(*[None] * 6), messages(*[None] * 6, place=THERE)
    inbox.awaited = HERE
    inbox.add(THERE, others[:1])
    inbox.add(HERE, pile[:4])
    inbox.add(THERE, others[1:2])
    assert (inbox.is_cut_off(HERE), inbox.is_cut_off(THERE)) == (False, True)
    assert inbox.take(HERE, 0, 4).records == pile[:4]
    # What was taken makes room for others; what was kept does not.
    inbox.clear()
    inbox.add(THERE, others[:2])
    assert inbox.take(THERE, 0, 1).records == others[:1]
    inbox.add(THERE, others[2:3])
    inbox.add(THERE, others[3:])
    assert inbox.is_cut_off(THERE)
    assert inbox.take(THERE, 1, 9).records == others[1:3]


def test_a_record_of_another_partition_is_noticed() -> None:
    inbox = Inbox(10, PLENTY)
    inbox.add(HERE, messages(None, place=THERE))
    with pytest.raises(InvariantError, match="what is assigned to it"):
        inbox.take(HERE, 0, 9)


def test_events_are_no_records_and_only_some_are_troubles() -> None:
    record, end, trouble = messages(None, END, TROUBLE)
    assert [has_events([message]) for message in (record, end, trouble)] == [False, True, True]
    assert [trouble_of(message) for message in (record, end, trouble)] == [None, None, TROUBLE]
