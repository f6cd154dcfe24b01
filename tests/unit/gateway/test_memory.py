"""Remembered keys: none is forgotten early."""

from __future__ import annotations

from onceflow.gateway.memory import Memory
from onceflow.gateway.posts import KeyOf, remembered

HOUR_MS = 3_600_000


def filled(count: int, at_most: int = 10) -> Memory:
    memory = Memory(HOUR_MS, at_most)
    for n in range(count):
        memory.add(b"%d" % n, remembered(KeyOf(b"", ""), "t", [(0, n)], at_ms=n))
    return memory


def test_there_is_room_until_it_is_full() -> None:
    assert filled(3).room(now_ms=5) == 7
    assert filled(10).room(now_ms=5) == 0


def test_more_than_fit_are_read_at_a_start_and_all_are_kept() -> None:
    memory = filled(12)
    assert memory.room(now_ms=5) == 0
    assert all(memory.find(b"%d" % n) for n in range(12))


def test_a_key_is_forgotten_when_it_is_old_and_not_before() -> None:
    memory = filled(10)
    assert memory.room(now_ms=HOUR_MS - 1) == 0
    assert memory.full_until_ms() == HOUR_MS
    assert memory.room(now_ms=HOUR_MS + 1) == 2
    assert (memory.find(b"1"), memory.find(b"2") is None) == (None, False)


def test_a_key_that_was_used_again_after_that_is_as_old_as_its_last_use() -> None:
    memory = filled(2)
    newer = remembered(KeyOf(b"", ""), "t", [(0, 9)], at_ms=HOUR_MS)
    memory.add(b"0", newer)
    memory.room(now_ms=HOUR_MS + 5)
    assert memory.find(b"0") == newer
    assert memory.find(b"1") is None
