"""Each check of a history is fed one with exactly its anomaly, and all others stay silent on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.history.check import AGAINST_ORACLE, ALONE, check_all
from tests.faults.history.made import (
    BATCHES,
    HEAD,
    OUTPUT,
    OWNER,
    PARTITIONS,
    PLACES,
    Batch,
    Fields,
    expected_of,
    header_bytes,
    made,
    rewrite,
    rewrite_head,
)
from tests.faults.history.model import (
    Attempt,
    Ends,
    Isolation,
    OpenTransaction,
    Outcome,
    Poll,
    Probe,
    Reader,
    Record,
)
from tests.faults.history.recorded import History
from tests.faults.history.wire import header_of
from tests.faults.history.writes import Expected, Pair

P0 = (OUTPUT, 0)


def names(history: History, expected: Expected | None = None) -> set[str]:
    return {found.name for found in check_all(history, expected or expected_of(history))}


def text(history: History, expected: Expected | None = None) -> str:
    return "\n".join(map(str, check_all(history, expected or expected_of(history))))


def reader(history: History, isolation: Isolation = Isolation.COMMITTED) -> Reader:
    (found,) = history.readers_at(isolation)
    return found


def edit_polls(reader: Reader, change: Callable[[Record], Record | None]) -> None:
    """Change what this reader alone sees."""
    reader.polls = [
        replace(poll, records=tuple(new for new in map(change, poll.records) if new is not None))
        for poll in reader.polls
    ]


def at(offset: int, place: tuple[str, int] = P0) -> Callable[[Record], bool]:
    return lambda record: (record.place, record.offset) == (place, offset)


def sequence(record: Record, number: int) -> Record:
    header = header_of(record)
    assert header is not None
    return replace(record, header=header_bytes(batch_id=header.batch_id, sequence=number))


def put_bounds(fields: Fields, bounds: list[int]) -> None:
    fields["sink"]["sequence"]["0"] = bounds


# ---- clean ---------------------------------------------------------------------------------------

batches = st.lists(
    st.builds(
        Batch,
        st.lists(st.integers(0, PARTITIONS - 1), max_size=4),
        st.just("same"),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(batches, st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_pipeline_without_faults_has_no_anomaly(batches: list[Batch], moves: list[bool]) -> None:
    runs = [sum(moves[: i + 1]) for i in range(len(batches))]
    history = made([replace(b, run=f"run-{run}") for b, run in zip(batches, runs, strict=True)])

    assert check_all(history, expected_of(history)) == []


def test_what_other_writers_and_retention_do_is_no_anomaly() -> None:
    history = made()
    end = history.final[P0]
    foreign = Record(*P0, end.high_watermark, b"k", b"foreign", None, 0)
    other = replace(
        foreign,
        offset=foreign.offset + 1,
        header=header_bytes(batch_id=9, sequence=9, pipeline="other"),
    )
    end.records += [foreign, other]
    end.log_start = end.records[1].offset
    del end.records[0]
    reader(history).polls.append(Poll(1000, 1000.0, (foreign, other), reader(history).positions))

    assert text(history) == ""


def test_a_ledger_that_was_compacted_is_no_aborted_read() -> None:
    history = made([*BATCHES, Batch([0], "run-3")])
    claims = history.final[OWNER].records
    assert len(claims) == 3
    history.final[OWNER].records = claims[:1] + claims[2:]

    assert "aborted_read" not in names(history)


# ---- what was written ----------------------------------------------------------------------------


def test_lost_write() -> None:
    history = made()
    expected = expected_of(history)
    expected.must[b"k99", b"v99"] += 1

    assert names(history, expected) == {"lost_write"}
    assert "expected 1 of (b'k99', b'v99'), found 0" in text(history, expected)


def test_lost_write_of_a_batch_that_was_acknowledged() -> None:
    history = made()
    history.attempts = [
        Attempt(1, 0.0, 3, "run-2", Outcome.OK),
        Attempt(2, 0.0, 4, "run-2", Outcome.OK),
        Attempt(3, 0.0, 5, "run-2", Outcome.UNKNOWN),
    ]

    assert names(history) == {"lost_write"}
    assert "batch 4 of run run-2" in text(history)
    assert len(check_all(history, expected_of(history))) == 1


def test_duplicate() -> None:
    history = made()
    expected = expected_of(history)
    del expected.must[b"k0", b"v0"]

    assert names(history, expected) == {"duplicate"}
    assert "expected at most 0 of (b'k0', b'v0'), found 1 at views-out-0 offset 0" in text(
        history, expected
    )


def test_what_may_be_there_is_neither_lost_nor_repeated() -> None:
    history = made()
    must = expected_of(history).must
    del must[b"k0", b"v0"]
    may = Counter[Pair]([(b"k0", b"v0"), (b"k99", b"v99")])

    assert check_all(history, Expected(must, may)) == []
    assert names(history, Expected(must - Counter[Pair]([(b"k1", b"v1")]), may)) == {"duplicate"}


def test_nonmonotonic_sequence() -> None:
    history = made()
    swapped = {0: 2, 1: 1}
    rewrite(
        history, lambda r: sequence(r, swapped[r.offset]) if r.place == P0 and r.offset < 2 else r
    )

    assert names(history) == {"nonmonotonic_sequence"}
    assert "offset 1 batch 0: expected a sequence above 2 of lineage 0, found 1" in text(history)


def test_nonmonotonic_sequence_of_another_lineage() -> None:
    history = made()

    def began_again(record: Record) -> Record:
        header = header_of(record)
        if record.place != P0 or header is None or header.batch_id < 3:
            return record
        packed = header_bytes(batch_id=3, sequence=header.sequence, lineage=8)
        return replace(record, header=packed)

    rewrite(history, began_again)
    assert names(history) == {"nonmonotonic_sequence"}
    assert "of lineage 0, found 5 of 8" in text(history)


def test_sequence_hole() -> None:
    history = made()

    def skip_three(record: Record) -> Record:
        header = header_of(record)
        if record.place != P0 or header is None or header.sequence < 3:
            return record
        return sequence(record, header.sequence + 1)

    rewrite(history, skip_three)
    for batch_id, bounds in {1: [4, 5], 2: [6, 5], 3: [6, 6]}.items():
        rewrite_head(history, batch_id, partial(put_bounds, bounds=bounds))

    assert names(history) == {"sequence_hole"}
    assert "views-out-0: expected sequence 3 to 3 between 2 and 4" in text(history)


def test_sequence_hole_at_the_beginning() -> None:
    history = made([Batch([0])])
    rewrite(history, lambda r: sequence(r, 2) if r.place == P0 else r)
    rewrite_head(history, 0, partial(put_bounds, bounds=[2, 2]))

    assert names(history) == {"sequence_hole"}
    assert "expected sequence 1 to 1 between 0 and 2" in text(history)


def test_torn_batch() -> None:
    history = made()
    rewrite_head(history, 1, lambda f: f["sink"]["sequence"].update({"1": [2, 4]}))

    assert names(history) == {"torn_batch"}
    assert "views-out-1 batch 1: expected 3 records, sequence 2 to 4" in text(history)


# ---- what readers saw ----------------------------------------------------------------------------


def aborted_record(history: History) -> Record:
    """One that only the uncommitted reader saw."""
    final = {(r.place, r.offset) for end in history.outputs() for r in end.records}
    return next(
        record
        for _, record in reader(history, Isolation.UNCOMMITTED).observations()
        if record.topic == OUTPUT and (record.place, record.offset) not in final
    )


def test_aborted_read() -> None:
    history = made()
    aborted = aborted_record(history)
    polls = reader(history).polls
    index = next(
        i for i, p in enumerate(polls) if any(r.offset > aborted.offset for r in p.records)
    )
    polls[index] = replace(polls[index], records=(aborted, *polls[index].records))

    assert names(history) == {"aborted_read"}
    assert f"{aborted.topic}-{aborted.partition} offset {aborted.offset}" in text(history)


def test_aborted_read_of_a_head_whose_attempts_all_failed() -> None:
    history = made()
    history.attempts = [
        Attempt(1, 0.0, 1, "run-1", Outcome.FAILED),
        Attempt(2, 0.0, 3, "run-2", Outcome.FAILED),
        Attempt(3, 0.0, 3, "run-2", Outcome.UNKNOWN),
        Attempt(4, 0.0, 0, "run-9", Outcome.FAILED),
    ]

    assert names(history) == {"aborted_read"}
    assert "batch 1 of run run-1" in text(history)
    assert len(check_all(history, expected_of(history))) == 1


def test_dirty_read() -> None:
    history = made()
    early(history, leader_epochs=[1] * len(history.probes))

    assert names(history) == {"dirty_read"}
    assert "views-out-0 offset 0: the committed reader saw key b'k0'" in text(history)


def test_a_leader_that_was_deposed_is_no_witness_of_a_dirty_read() -> None:
    history = made()
    early(history, leader_epochs=[1, 1, 1, *[2] * (len(history.probes) - 3)])

    assert check_all(history, expected_of(history)) == []


def test_a_leader_that_answers_long_after_it_was_deposed_is_no_witness() -> None:
    history = made()
    early(history, leader_epochs=[2, 2, 1, *[2] * (len(history.probes) - 3)])
    history.probes = [replace(p, at_s=p.at_s * 100) for p in history.probes]
    for each in history.readers:
        each.polls = [replace(p, at_s=p.at_s * 100) for p in each.polls]

    assert check_all(history, expected_of(history)) == []


def test_an_answer_that_falls_behind_an_earlier_one_is_no_witness() -> None:
    history = made()
    early(history, leader_epochs=[1] * len(history.probes))
    history.probes.insert(0, Probe(0, 0.0, dict.fromkeys(PLACES, Ends(99, 99, 1))))

    assert check_all(history, expected_of(history)) == []


def early(history: History, leader_epochs: list[int]) -> None:
    """The committed reader sees the first batch with the uncommitted one, before the probe that is
    before its marker."""
    for i, (probe, leader_epoch) in enumerate(zip(history.probes, leader_epochs, strict=True)):
        ends = {place: replace(e, leader_epoch=leader_epoch) for place, e in probe.ends.items()}
        history.probes[i] = replace(probe, ends=ends)
    polls = reader(history).polls
    first = next(i for i, p in enumerate(polls) if any(r.place == P0 for r in p.records))
    undecided = next(p for p in history.probes if p.ends[P0] == Ends(0, 2, p.ends[P0].leader_epoch))
    polls[first] = replace(polls[first], at_s=undecided.at_s - 0.5)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_inconsistent_offsets(isolation: Isolation) -> None:
    history = made()
    edit_polls(reader(history, isolation), lambda r: replace(r, value=b"x") if at(0)(r) else r)

    assert names(history) == {"inconsistent_offsets"}
    assert "views-out-0 offset 0" in text(history)


def test_inconsistent_offsets_of_an_aborted_record() -> None:
    history = made()
    aborted = aborted_record(history)
    again = Poll(1000, 1000.0, (replace(aborted, timestamp_ms=5),), {})
    reader(history, Isolation.UNCOMMITTED).polls.append(again)

    assert names(history) == {"inconsistent_offsets"}


def test_reader_disagreement_about_which_records() -> None:
    history = made()
    edit_polls(reader(history), lambda r: None if at(1)(r) else r)

    assert names(history) == {"reader_disagreement"}
    assert "views-out-0 offset 1: expected the committed reader" in text(history)


def test_reader_disagreement_about_their_order() -> None:
    history = made()
    committed = reader(history)
    committed.polls = [replace(p, records=p.records[::-1]) for p in committed.polls]

    assert names(history) == {"reader_disagreement"}


def test_reader_disagreement_about_the_end() -> None:
    history = made()
    del reader(history).polls[-1]

    assert names(history) == {"reader_disagreement"}
    assert "to read up to" in text(history)


def test_reader_disagreement_if_nobody_read() -> None:
    history = made()
    history.readers.remove(reader(history))

    assert names(history) == {"reader_disagreement"}


# ---- the ledger, and what is left open -----------------------------------------------------------


def test_two_owners() -> None:
    history = made()
    rewrite_head(history, 3, lambda f: f.update(run_id="run-1", token=1))

    assert names(history) == {"two_owners"}
    assert "head of batch 3 generation 1 by run run-1" in text(history)


def test_two_owners_with_one_token() -> None:
    """Two that read the ledger at once make the same token: a run is what counts."""
    history = made()
    rewrite(history, lambda r: _with_token(r, 1) if r.place in {OWNER, HEAD} else r)
    assert check_all(history, expected_of(history)) == []

    rewrite_head(history, 3, lambda f: f.update(run_id="run-1"))
    assert names(history) == {"two_owners"}


def test_two_owners_of_whom_one_never_claimed() -> None:
    history = made()
    rewrite_head(history, 1, lambda f: f.update(run_id="run-9"))
    found = check_all(history, expected_of(history))

    assert {anomaly.name for anomaly in found} == {"two_owners"}
    assert "never claimed" in str(found[0])


def test_ledger_mismatch_of_sequences() -> None:
    history = made()
    rewrite_head(history, 3, lambda f: f["sink"]["sequence"].update({"0": [6, 6]}))

    assert names(history) == {"ledger_mismatch"}
    assert "views-out-0: expected the last committed record to have sequence 6" in text(history)


def test_ledger_mismatch_of_input_ranges() -> None:
    history = made()
    rewrite_head(history, 1, lambda f: f["sources"]["s"]["in"].update({"0": [12, 20]}))

    assert names(history) == {"ledger_mismatch"}
    assert "to read in-0 from 10" in text(history)


def test_ledger_mismatch_of_a_batch_that_is_there_twice() -> None:
    history = made()
    rewrite_head(
        history,
        2,
        lambda f: f.update(batch_id=1, sources={"s": {"in": {"0": [20, 30]}}}),
    )

    assert "ledger_mismatch" in names(history)


def test_hung_transaction() -> None:
    history = made()
    history.transactions = [OpenTransaction("onceflow.views.s0.l1", "Ongoing", (P0,))]

    assert names(history) == {"hung_transaction"}
    assert "onceflow.views.s0.l1" in text(history)


def test_lagging_stable_offset() -> None:
    history = made()
    history.final[P0].high_watermark += 1

    assert names(history) == {"lagging_stable_offset"}
    assert "views-out-0" in text(history)


# ---- what implies what ---------------------------------------------------------------------------


def test_a_record_that_is_missing_in_the_middle_is_lost_a_hole_and_a_torn_batch() -> None:
    history = made()
    expected = expected_of(history)
    rewrite(history, lambda r: None if at(1)(r) else r)

    assert names(history, expected) == {"lost_write", "sequence_hole", "torn_batch"}


def test_a_record_that_is_missing_at_the_end_contradicts_the_ledger_and_is_no_hole() -> None:
    history = made()
    expected = expected_of(history)
    last = history.final[P0].records[-1]
    rewrite(history, lambda r: None if r == last else r)

    assert names(history, expected) == {"lost_write", "torn_batch", "ledger_mismatch"}


def test_a_batch_without_a_head_is_torn_and_contradicts_the_ledger() -> None:
    history = made()
    last = history.final[HEAD].records[-1]
    rewrite(history, lambda r: None if r == last else r)

    assert names(history) == {"torn_batch", "ledger_mismatch"}
    assert "found 1 records and no head" in text(history)


def test_a_batch_that_is_committed_twice_repeats_values_sequences_and_its_head() -> None:
    history = made()
    expected = expected_of(history)
    for place in (P0, (OUTPUT, 1), HEAD):
        end = history.final[place]
        last = end.records[-1]
        again = replace(last, offset=end.high_watermark)
        end.records.append(again)
        end.high_watermark = end.last_stable_offset = again.offset + 2
        reader(history).polls.append(Poll(1000, 1000.0, (again,), reader(history).positions))

    assert names(history, expected) == {"duplicate", "nonmonotonic_sequence", "ledger_mismatch"}


# ---- the rest ------------------------------------------------------------------------------------


def test_every_check_is_tested_here_under_its_name() -> None:
    tests = [name for name in globals() if name.startswith("test_")]

    for check in (*ALONE, *AGAINST_ORACLE):
        assert [test for test in tests if test.startswith(f"test_{check.__name__}")]


def _with_token(record: Record, token: int) -> Record:
    assert record.value is not None
    fields = json.loads(record.value) | {"token": token}
    return replace(record, value=json.dumps(fields).encode())
