"""The rules applied to a verdict, where the contract suite does not show it."""

from __future__ import annotations

import pickle

import pytest

from onceflow.errors import CorruptionError
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.record import HEADER_NAME, RecordHeader
from onceflow_connectors.consumer import (
    Counters,
    Divergence,
    GenerationChange,
    Hooks,
    OnFault,
    Record,
    Rules,
)
from onceflow_connectors.consumer.admission import NO_HOOKS, Admission
from onceflow_connectors.consumer.filter import PartitionFilter

LEAST = Delivery.AT_LEAST_ONCE
TOLERANT = Rules(gap=OnFault.REPORT, divergence=OnFault.REPORT)


def record(
    *sequences: int,
    generation: int = 1,
    plan_tag: int = 7,
    batch_id: int = 0,
    delivery: Delivery = Delivery.EXACTLY_ONCE,
) -> Record:
    """With one header for each sequence."""
    headers = [
        (
            HEADER_NAME,
            RecordHeader(delivery.flag, 1, generation, plan_tag, batch_id, sequence).pack(),
        )
        for sequence in sequences
    ]
    return Record("out", 0, 5, 0, None, b"", (("other", b"x"), *headers))


def test_tolerance_needs_no_hooks() -> None:
    counters, filter_ = Counters(), PartitionFilter()
    admission = Admission(TOLERANT, NO_HOOKS, counters)
    offered = [record(1), record(3), record(3, plan_tag=8), record(4, generation=2)]
    assert [admission.admit(one, filter_) for one in offered] == [True] * 4
    assert counters == Counters(delivered=4, gaps=1, divergences=1)


@pytest.mark.parametrize("delivery", Delivery)
def test_what_a_mode_allows_is_reported_and_nothing_else(delivery: Delivery) -> None:
    counters, filter_ = Counters(), PartitionFilter()
    admission = Admission(Rules(), NO_HOOKS, counters)
    admission.admit(record(1, delivery=delivery), filter_)
    gap = record(3, delivery=delivery)
    other = record(1, plan_tag=8, delivery=delivery)
    allowed = {Delivery.AT_MOST_ONCE: [gap], Delivery.AT_LEAST_ONCE: [other]}.get(delivery, [])
    for one in (gap, other):
        if one in allowed:
            assert admission.admit(one, filter_)
        else:
            with pytest.raises(CorruptionError):
                admission.admit(one, filter_)
    assert not admission.admit(record(1, delivery=delivery), filter_)
    assert (counters.gaps, counters.divergences, counters.discarded) == (1, 1, 1)


def test_what_another_version_of_a_batch_has_more_is_not_missing_behind_it() -> None:
    """A zombie's 1, 2 came first; the ledger's batch has 1, 2, 3, and the next begins with 4."""
    told: list[Divergence] = []
    counters, filter_ = Counters(), PartitionFilter()
    admission = Admission(Rules(), Hooks(on_divergence=told.append), counters)
    zombie = [record(n, plan_tag=8, delivery=LEAST) for n in (1, 2)]
    batch = [record(n, delivery=LEAST) for n in (1, 2, 3)]
    following = record(4, batch_id=1, delivery=LEAST)
    assert [admission.admit(one, filter_) for one in (*zombie, *batch, following)] == [True] * 6
    assert [divergence.record for divergence in told] == batch
    assert (counters.gaps, filter_.track(1).high_water) == (0, 4)
    # Later than the next batch, the zombie's are flagged as well and move nothing.
    assert admission.admit(record(5, plan_tag=8, delivery=LEAST), filter_)
    assert filter_.track(1).high_water == 4


def test_what_a_hook_raises_leaves_the_record_undelivered() -> None:
    def refuse(change: GenerationChange) -> None:
        raise ZeroDivisionError(change)

    counters, filter_ = Counters(), PartitionFilter()
    admission = Admission(Rules(), Hooks(on_generation=refuse), counters)
    assert admission.admit(record(1), filter_)
    with pytest.raises(ZeroDivisionError):
        admission.admit(record(2, generation=2), filter_)
    assert filter_.track(1).high_water == counters.delivered == 1


def test_an_error_leaves_the_filter_unchanged() -> None:
    filter_ = PartitionFilter()
    admission = Admission(Rules(), NO_HOOKS, Counters())
    admission.admit(record(1), filter_)
    before = filter_.to_json()
    for bad in (record(3), record(1, plan_tag=8)):
        with pytest.raises(CorruptionError):
            admission.admit(bad, filter_)
    assert filter_.to_json() == before


def test_of_several_headers_the_last_one_counts() -> None:
    header = record(1, 2).header
    assert header is not None
    assert header.sequence == 2


def test_a_record_without_our_header_has_none() -> None:
    assert record().header is None


def test_a_header_without_value_is_damaged() -> None:
    with pytest.raises(CorruptionError, match="found 0 bytes"):
        _ = Record("out", 0, 5, 0, None, b"", ((HEADER_NAME, None),)).header


def test_an_error_about_a_record_survives_pickling() -> None:
    admission = Admission(Rules(), NO_HOOKS, Counters())
    damaged = Record("out", 0, 5, 0, None, b"", ((HEADER_NAME, b"x"),))
    with pytest.raises(CorruptionError) as caught:
        admission.admit(damaged, PartitionFilter())
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert "out[0]@5" in str(caught.value)
