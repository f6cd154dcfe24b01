"""A dead letter is the record as it came, and what is known about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import CorruptionError
from onceflow.protocol.dead_letter import HEADER_PREFIX, DeadLetter, in_order

numbers = st.integers(-1, 2**63 - 1)
letters = st.builds(
    DeadLetter,
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(
        st.tuples(st.sampled_from(["a", "onceflow", ""]), st.none() | st.binary())
    ).map(tuple),
    batch_id=numbers,
    partition=numbers,
    offset=numbers,
    timestamp_ms=numbers,
)


@given(letters)
def test_every_letter_survives_its_topic(letter: DeadLetter) -> None:
    assert DeadLetter.from_record(letter.key, letter.value, letter.to_headers()) == letter


@given(letters)
def test_its_own_headers_come_first_and_in_order(letter: DeadLetter) -> None:
    headers = letter.to_headers()
    assert headers[: len(letter.headers)] == letter.headers
    assert all(name.startswith(HEADER_PREFIX) for name, _ in headers[len(letter.headers) :])


@given(st.lists(letters), st.randoms(use_true_random=False))
def test_every_attempt_writes_them_in_one_order(found: list[DeadLetter], shuffler: object) -> None:
    shuffled = [*found]
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    key = [(x.topic, x.partition, x.offset, x.key or b"", x.value or b"") for x in in_order(found)]
    again = [
        (x.topic, x.partition, x.offset, x.key or b"", x.value or b"") for x in in_order(shuffled)
    ]
    assert key == again


@given(letters, st.integers(1, 100))
def test_letters_of_one_partition_stay_together(letter: DeadLetter, partitions: int) -> None:
    first = letter.partition_of(partitions)
    assert 0 <= first < partitions
    again = DeadLetter.from_record(b"other", b"other", letter.to_headers())
    assert again.partition_of(partitions) == first


@given(letters, st.integers(0, 8))
def test_a_letter_that_lacks_a_fact_is_refused(letter: DeadLetter, missing: int) -> None:
    headers = [*letter.to_headers()]
    del headers[len(letter.headers) + missing]
    with pytest.raises(CorruptionError, match="not a dead letter"):
        DeadLetter.from_record(letter.key, letter.value, tuple(headers))
