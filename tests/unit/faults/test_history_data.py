"""A history is kept whole, in memory and on disk, read as published, and reported in short."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.history.check import SHOWN, assert_clean
from tests.faults.history.made import OUTPUT, expected_of, made, rewrite
from tests.faults.history.model import Attempt, Input, OpenTransaction, Outcome, Record
from tests.faults.history.pool import Pool
from tests.faults.history.recorded import History
from tests.faults.history.wire import header_of
from tests.faults.history.writes import Expected

VECTORS = Path(__file__).parents[3] / "docs" / "protocol" / "vectors.json"
P0 = (OUTPUT, 0)
data = st.none() | st.binary(max_size=40)


@given(key=data, value=data, header=data)
def test_a_history_survives_on_disk(
    tmp_path_factory: pytest.TempPathFactory,
    key: bytes | None,
    value: bytes | None,
    header: bytes | None,
) -> None:
    history = made()
    rewrite(
        history,
        lambda r: (
            replace(r, key=key, value=value, header=header)
            if r.place == P0 and r.offset == 0
            else r
        ),
    )
    history.inputs = [Input(3, 0.5, "i-1", "in", key, value or b"", Outcome.FAILED)]
    history.attempts = [Attempt(4, 0.5, 1, "run-1", Outcome.UNKNOWN)]
    history.transactions = [OpenTransaction("t", "Ongoing", (P0,))]
    history.readers[0].errors = ["broker down"]
    folder = tmp_path_factory.mktemp("history") / "new"

    history.save(folder)

    assert History.load(folder) == history


def test_a_record_that_many_read_is_held_once() -> None:
    pool = Pool()
    first = Record("t", 0, 5, b"k", b"v", None, 1)
    other = replace(first, value=b"other")
    before = replace(first, offset=3)

    assert pool.share(first) is first
    assert pool.share(replace(first)) is first
    assert pool.share(other) is other
    assert pool.share(before) is before


def test_headers_are_read_as_published() -> None:
    vectors = json.loads(VECTORS.read_text())
    record = Record("t", 0, 0, None, None, None, 0)

    for vector in vectors["record_headers"]:
        header = header_of(replace(record, header=bytes.fromhex(vector["hex"])))
        assert header is not None
        assert vector["fields"] == {
            name: number for name, number in header._asdict().items() if name in vector["fields"]
        }
    for vector in vectors["unreadable_record_headers"]:
        assert header_of(replace(record, header=bytes.fromhex(vector["hex"]))) is None


def test_an_input_that_failed_must_leave_nothing() -> None:
    def sent(number: int, outcome: Outcome) -> Input:
        return Input(number, 0.0, str(number), "in", None, b"%d" % number, outcome)

    inputs = [sent(0, Outcome.OK), sent(1, Outcome.FAILED), sent(2, Outcome.UNKNOWN)]
    expected = Expected.of_inputs(inputs, lambda one: [one.value])

    assert expected.must == Counter([b"0"])
    assert expected.may == Counter([b"2"])


def test_a_failure_shows_some_of_each_and_the_total() -> None:
    history = made()
    history.transactions = [OpenTransaction(f"t{i}", "Ongoing") for i in range(1000)]
    history.final[P0].high_watermark += 1

    with pytest.raises(AssertionError) as failure:
        assert_clean(history, expected_of(history))
    lines = str(failure.value).splitlines()
    assert "1001 anomalies (1000 hung_transaction, 1 lagging_stable_offset)" in lines[0]
    assert 2 < len(lines) <= SHOWN + 1
    assert lines[-1].startswith("lagging_stable_offset: ")
