"""The content digest: published bytes in, and different rows never look alike."""

from __future__ import annotations

import hashlib

from hypothesis import assume, given
from hypothesis import strategies as st

from onceflow.protocol.digest import Row, RunningDigest, digest_of

payloads = st.none() | st.binary(max_size=6)
batches: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.integers(0, 5), payloads, payloads), max_size=6
)


def test_rows_are_hashed_with_their_lengths() -> None:
    # partition 1, key of 1 byte, value of 2 bytes; then partition 2, null key, empty value
    written_by_hand = bytes.fromhex("00000001 00000001 00000002 6b 7631 00000002 ffffffff 00000000")
    rows: list[Row] = [(1, b"k", b"v1"), (2, None, b"")]
    assert digest_of(rows) == hashlib.sha256(written_by_hand).hexdigest()
    assert digest_of([]) == hashlib.sha256().hexdigest()


@given(batches, batches)
def test_different_batches_have_different_digests(one: list[Row], other: list[Row]) -> None:
    assume(one != other)
    assert digest_of(one) != digest_of(other)


@given(batches)
def test_rows_may_arrive_one_by_one(rows: list[Row]) -> None:
    running = RunningDigest()
    for row in rows:
        running.add(row)
    assert running.hexdigest() == digest_of(iter(rows)) == digest_of(rows)


def test_null_and_empty_differ() -> None:
    assert len({digest_of([(0, k, v)]) for k in (None, b"") for v in (None, b"")}) == 4


def test_bytes_do_not_move_between_key_and_value() -> None:
    assert digest_of([(0, b"ab", b"c")]) != digest_of([(0, b"a", b"bc")])


@given(batches.filter(bool), st.integers(0, 5), st.data())
def test_a_row_that_is_elsewhere_or_there_again_changes_the_digest(
    rows: list[Row], other: int, data: st.DataObject
) -> None:
    """Neighbours of one batch, which two batches made at random hardly ever are."""
    chosen = data.draw(st.integers(0, len(rows) - 1))
    before, row, after = rows[:chosen], rows[chosen], rows[chosen + 1 :]
    assert digest_of([*before, row, row, *after]) != digest_of(rows)
    assert digest_of([*before, *after]) != digest_of(rows)
    assume(other != row[0])
    assert digest_of([*before, (other, *row[1:]), *after]) != digest_of(rows)
