"""What the rules make of a verdict, where the contract suite does not say it."""

from __future__ import annotations

import pickle

import pytest

from onceflow.errors import CorruptionError
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from onceflow_connectors.consumer import Counters, GenerationChange, Hooks, OnFault, Record, Rules
from onceflow_connectors.consumer.admission import NO_HOOKS, Admission
from onceflow_connectors.consumer.filter import PartitionFilter

TOLERANT = Rules(gap=OnFault.REPORT, divergence=OnFault.REPORT)


def record(*sequences: int, generation: int = 1, plan_tag: int = 7) -> Record:
    """With one header for each sequence."""
    headers = [
        (HEADER_NAME, RecordHeader(Flag(0), 1, generation, plan_tag, 0, sequence).pack())
        for sequence in sequences
    ]
    return Record("out", 0, 5, 0, None, b"", (("other", b"x"), *headers))


def test_tolerance_needs_no_hooks() -> None:
    counters, filter_ = Counters(), PartitionFilter()
    admission = Admission(TOLERANT, NO_HOOKS, counters)
    offered = [record(1), record(3), record(3, plan_tag=8), record(4, generation=2)]
    assert [admission.admit(one, filter_) for one in offered] == [True] * 4
    assert counters == Counters(delivered=4, gaps=1, divergences=1)


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
