"""One key of a processor: order, timers, time to live, rejects; on the harness."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from onceflow.columns import parse_columns
from onceflow.errors import CorruptionError, RecordError
from onceflow.processing import List, Map, Processor, ProcessorHarness, Value, runner
from onceflow.processing.checks import make_runner
from onceflow.processing.codec import WAKES

T0 = datetime(2026, 1, 1, tzinfo=UTC)
INPUT = "card string, amount int, at timestamp"


def at(second: float) -> datetime:
    return T0 + timedelta(seconds=second)


def record(second: float, amount: int = 1, card: str | None = "a") -> dict[str, Any]:
    return {"card": card, "amount": amount, "at": at(second)}


def harness(kind: type[Processor], **choices: Any) -> ProcessorHarness:
    return ProcessorHarness(kind, INPUT, **{"event_time": "at", "lateness": "10 s", **choices})


def runner_of(kind: type[Processor]) -> runner.Runner:
    columns = parse_columns(INPUT)
    return make_runner(kind, name="step", columns=columns, key=None, time="at", output=None)


def ms(time: datetime) -> int:
    return (time - runner.EPOCH) // timedelta(milliseconds=1)


class Told(Processor):
    """Tells what it is called with, in order."""

    key = "card"
    output = "what string"

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for each in records:
            yield (f"{each.amount} at {(each.at - T0).total_seconds():g}",)
            if each.amount >= 100:
                self.timers.at(each.at + timedelta(seconds=each.amount - 100), str(each.amount))

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        yield {"what": f"timer {name} at {(at - T0).total_seconds():g}"}


def told(rows: list[dict[str, Any]]) -> list[str]:
    return [row["what"] for row in rows]


def test_records_of_a_batch_come_by_event_time_and_then_by_offset() -> None:
    rows = harness(Told).send(record(3, 1), record(1, 2), record(1, 3), record(2, 4))
    assert told(rows) == ["2 at 1", "3 at 1", "4 at 2", "1 at 3"]


def test_columns_of_the_order_decide_between_records_of_one_event_time() -> None:
    rows = harness(Told, order=["amount"]).send(record(1, 3), record(1, 1), record(0, 2))
    assert told(rows) == ["2 at 0", "1 at 1", "3 at 1"]


def test_a_record_before_the_watermark_is_late() -> None:
    run = harness(Told)
    run.send(record(30))
    assert told(run.send(record(20), record(20.001))) == ["1 at 20.001"]
    assert [each["at"] for each in run.late] == [at(20)]


def test_a_record_without_an_event_time_is_rejected_beside_others() -> None:
    run = harness(Told, on_reject="drop")
    assert told(run.send(record(2), {**record(1, 2), "at": None}, record(1, 3))) == [
        "3 at 1",
        "1 at 2",
    ]
    assert "the event time is null" in run.rejected[0]


def test_records_may_say_their_places() -> None:
    place = ", _topic string, _partition int, _offset bigint"
    run = ProcessorHarness(Told, INPUT + place, event_time="at")
    rows = run.send(
        {**record(1, 1), "_topic": "b", "_partition": 0, "_offset": 0},
        {**record(1, 2), "_topic": "a", "_partition": 1, "_offset": 7},
        {**record(1, 3), "_topic": "a", "_partition": 0, "_offset": 9},
    )
    assert told(rows) == ["3 at 1", "2 at 1", "1 at 1"]


def test_a_timer_goes_off_when_the_watermark_has_passed_it() -> None:
    run = harness(Told)
    run.send(record(0, 105))
    assert run.timers("a") == [(at(5), "105")]
    assert run.advance(at(4.999)) == []
    assert told(run.advance(at(5))) == ["timer 105 at 5"]
    assert run.keys == []


def test_a_due_timer_comes_before_a_later_record_of_the_same_batch() -> None:
    """Spark alone would hand out the records first: its timers go off after the data."""
    of_told = runner_of(Told)
    before = of_told.handle(("a",), None, [("a", 105, at(0))], 0)
    handled = of_told.handle(("a",), before.state, [("a", 2, at(4)), ("a", 1, at(9))], ms(at(8)))
    assert [row[0] for row in handled.rows] == ["2 at 4", "timer 105 at 5", "1 at 9"]
    assert (before.wake_ms, handled.wake_before_ms, handled.wake_ms) == (ms(at(5)), ms(at(5)), None)


class Later(Processor):
    key = "card"
    output = "n bigint"
    n = Value("bigint", default=0)

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        self.n.set(self.n.get() + len(records))
        yield (self.n.get(),)
        self.timers.at(self.now - timedelta(seconds=1))

    def on_timer(self, key: Any, at: datetime, name: str) -> None:
        """Never called."""


class Deaf(Processor):
    key = "card"
    output = "n bigint"
    n = Value("bigint", default=0)

    def on_records(self, key: Any, records: Any) -> None:
        self.n.set(1)
        self.timers.at(self.now + timedelta(seconds=1), "soon")


def test_a_timer_that_nothing_handles_is_refused() -> None:
    with pytest.raises(RecordError, match="timer 'soon': expected a class with `on_timer`"):
        harness(Deaf).send(record(0))


class Ending(Processor):
    key = "card"
    output = "n bigint"
    n = Value("bigint", default=0, ttl="1 hour")

    def on_records(self, key: Any, records: Any) -> None:
        self.n.set(1)


def test_spark_is_asked_for_timers_only_if_there_may_be_some() -> None:
    deaf = runner_of(Deaf)
    assert not deaf.may_wake
    for each in (runner_of(Told), runner_of(Ending), replace(runner_of(Deaf), when="watermark")):
        assert each.may_wake
    # As an earlier release wrote it, and as the class did when it had `on_timer`.
    schema = deaf.codec.schema
    old = {name: schema[name] for name in schema.keys() - {WAKES}}
    for earlier in (old, runner_of(Told).codec.schema):
        assert replace(deaf, earlier=(earlier,)).may_wake
    assert not replace(deaf, earlier=(schema,)).may_wake


def test_a_timer_in_the_past_is_refused_with_class_key_and_record() -> None:
    with pytest.raises(RecordError) as caught:
        harness(Later).send(record(0))
    text = str(caught.value)
    assert "Later" in text
    assert '"card": "a"' in text
    assert '"offset": 0' in text
    assert "expected a time after 2026-01-01 00:00:00+00:00" in text


class Fussy(Processor):
    key = "card"
    output = "n bigint, amount int"
    n = Value("bigint", default=0)
    seen = Map("amount int", "n int")

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for each in records:
            self.n.set(self.n.get() + 1)
            self.seen[each.amount] = (self.seen.get(each.amount, (0,))[0] + 1,)
            yield self.n.get(), each.amount
            if each.amount == 13:
                raise KeyError("thirteen")


def test_a_record_that_fails_changes_nothing_and_the_others_count() -> None:
    run = harness(Fussy, on_reject="drop")
    rows = run.send(record(0, 1), record(1, 13), record(2, 2), record(3, 13))
    assert [(row["n"], row["amount"]) for row in rows] == [(1, 1), (2, 2)]
    assert [json.loads(each)["offset"] for each in run.rejected] == [1, 3]
    assert "KeyError: 'thirteen' (line" in run.rejected[0]
    assert run.state("a")["n"] == 2


def test_under_fail_nothing_of_the_batch_is_kept() -> None:
    run = harness(Fussy)
    run.send(record(0, 1))
    with pytest.raises(RecordError, match="Fussy failed"):
        run.send(record(1, 1), record(2, 13))
    assert run.state("a")["n"] == 1
    assert run.send(record(1, 1))[-1]["n"] == 2


@pytest.mark.parametrize("policy", ["fail", "drop"])
def test_a_record_without_a_key_is_rejected(policy: str) -> None:
    run = harness(Told, on_reject=policy)
    if policy == "fail":
        with pytest.raises(RecordError, match="the key is null: card"):
            run.send(record(0, 1, card=None))
    else:
        assert told(run.send(record(0, 1, card=None), record(0, 2))) == ["2 at 0"]
        assert "the key is null: card" in run.rejected[0]


class Recent(Processor):
    """How many records came in the last 10 seconds of event time."""

    key = "card"
    output = "n int"
    last = List("int", ttl="10 s")
    newest = Value("int", ttl="10 s", default=-1)
    by_amount = Map("int", "int", ttl="10 s")

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for each in records:
            self.last.append(each.amount)
            self.newest.set(each.amount)
            self.by_amount[each.amount] = each.amount
            yield (len(self.last),)


def test_what_is_too_old_is_gone_for_each_record_and_in_the_end_from_the_store() -> None:
    run = harness(Recent)
    rows = run.send(*(record(second, second) for second in (0, 4, 8, 10, 14)))
    assert [row["n"] for row in rows] == [1, 2, 3, 3, 3]
    assert run.state("a") == {
        "last": [8, 10, 14],
        "newest": 14,
        "by_amount": {8: 8, 10: 10, 14: 14},
    }
    run.advance(at(19))
    assert run.state("a") == {"last": [10, 14], "newest": 14, "by_amount": {10: 10, 14: 14}}
    run.advance(at(24))
    assert run.keys == []


@pytest.mark.parametrize(
    ("ddl", "other", "falsy"),
    [
        ("bigint", 5, 0),
        ("double", 5.0, 0.0),
        ("boolean", True, False),
        ("string", "a", ""),
        ("array<int>", [1], []),
        ("decimal(4,1)", Decimal(5), Decimal(0)),
    ],
)
def test_values_that_python_takes_for_false_are_kept(ddl: str, other: Any, falsy: Any) -> None:
    class Before(Processor):
        key = "card"
        value = Value(ddl, default=other)
        output = f"value {ddl}"

        def on_records(self, key: Any, records: Any) -> Iterator[Any]:
            yield (self.value.get(),)
            self.value.set(falsy)

    engine = harness(Before)
    assert [engine.send(record(second))[0]["value"] for second in (1, 2)] == [other, falsy]


def test_a_key_is_not_woken_for_what_has_ended() -> None:
    of_recent = runner_of(Recent)
    rows = [("a", 1, at(0)), ("a", 2, at(5))]
    first = of_recent.handle(("a",), None, rows, 0)
    assert first.wake_ms == ms(at(10))
    assert of_recent.handle(("a",), first.state, [], ms(at(10))).wake_ms == ms(at(15))


class Drained(Recent):
    """Leaves what Python's own methods of a map leave, once an entry is too old."""

    output = "left string"

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for each in records:
            self.by_amount.setdefault(each.amount, 0)
            self.by_amount.update({each.amount: self.by_amount.pop(each.amount) + each.amount})
            yield (str(dict(self.by_amount)),)


def test_a_map_is_one_of_python_in_the_order_of_its_keys_without_what_is_too_old() -> None:
    rows = harness(Drained).send(record(0, 2), record(4, 1), record(8, 2), record(14, 3))
    assert [row["left"] for row in rows] == [
        "{2: 2}",
        "{1: 1, 2: 2}",
        "{1: 1, 2: 4}",
        "{2: 4, 3: 3}",
    ]


class RecentFussy(Recent):
    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for each in records:
            if each.amount == 13:
                raise ValueError("unlucky")
            yield from super().on_records(key, [each])


def test_a_record_that_fails_makes_nothing_older_than_it_is() -> None:
    """The batch's event watermark may be far ahead of a record that waited for it."""
    run = harness(RecentFussy, when="watermark", on_reject="drop")
    rows = run.send(record(0, 1), record(2, 13), record(3, 2), record(9, 3), record(60, 4))
    assert [row["n"] for row in rows] == [1, 2, 3]
    assert len(run.rejected) == 1


class Grown(Processor):
    key = "card"
    output = "n int"
    text = List("string")

    def on_records(self, key: Any, records: Any) -> None:
        for each in records:
            self.text.append("x" * each.amount)


def test_a_state_that_grows_too_large_names_class_key_and_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "MAX_STATE_BYTES", 1000)
    with pytest.raises(RecordError, match=r"Grown failed: .*\"card\": \"a\".*most of them in text"):
        harness(Grown).send(record(0, 2000))
    run = harness(Grown, on_reject="drop")
    run.send(record(0, 500), record(1, 600), record(2, 300))
    assert [len(each) for each in run.state("a")["text"]] == [500, 300]


class Endless(Processor):
    key = "card"
    output = "n int"

    def on_records(self, key: Any, records: Any) -> None:
        self.timers.at(self.now + timedelta(milliseconds=1))

    def on_timer(self, key: Any, at: datetime, name: str) -> None:
        self.timers.at(at + timedelta(milliseconds=1))


def test_a_timer_that_sets_itself_too_often_ends_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "MAX_TIMERS", 100)
    run = harness(Endless)
    run.send(record(0))
    with pytest.raises(RecordError, match="more than 100 timers"):
        run.advance(at(1))


class Waits(Told):
    """The same, with records that wait for the watermark."""


def test_with_when_watermark_records_and_timers_come_by_time_whatever_the_batches() -> None:
    run = harness(Waits, when="watermark")
    assert run.send(record(0, 105), record(7, 2)) == []
    rows = told(run.send(record(4, 1), record(20, 3)))
    assert rows == ["105 at 0", "1 at 4", "timer 105 at 5", "2 at 7"]
    assert told(run.advance(at(100))) == ["3 at 20"]
    assert run.keys == []


class Forgets(Processor):
    key = "card"
    output = "n int"

    def on_records(self, key: Any, records: Any) -> None:
        self.count = 1


class Assigns(Processor):
    key = "card"
    output = "n int"
    n = Value("int")

    def on_records(self, key: Any, records: Any) -> None:
        self.n = 1


def test_attributes_cannot_be_kept() -> None:
    with pytest.raises(RecordError, match=r"Forgets.count cannot be set.*count = Value"):
        harness(Forgets).send(record(0))
    with pytest.raises(RecordError, match=r"Assigns.n is state.*self.n.set"):
        harness(Assigns).send(record(0))


class Wrong(Processor):
    key = "card"
    output = "n int, at timestamp"

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for each in records:
            yield [
                (1,),
                {"n": 1, "other": 2},
                {"n": "one", "at": each.at},
                {"n": 2**31, "at": each.at},
                {"n": 1, "at": datetime(2026, 1, 1)},  # noqa: DTZ001  that is what is wrong
                "row",
                None,
            ][each.amount]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (0, r"expected 2 values \(n, at\), found 1"),
        (1, "at missing and other unknown"),
        (2, "n: expected int, found str 'one'"),
        (3, "n: expected int, found int 2147483648"),
        (4, "at: expected timestamp, found datetime .*it needs a zone"),
        (5, "expected values by name or in order, found str 'row'"),
        (6, "NoneType"),
    ],
)
def test_an_output_row_that_does_not_fit_is_told_with_its_column(row: int, text: str) -> None:
    with pytest.raises(RecordError, match=text):
        harness(Wrong).send(record(0, row))


def test_a_state_of_another_schema_is_refused() -> None:
    state = runner_of(Fussy).handle(("a",), None, [("a", 1, at(0))], 0).state
    with pytest.raises(CorruptionError, match="written under another schema"):
        runner_of(Recent).handle(("a",), state, [], 0)


def test_a_damaged_state_is_told() -> None:
    state = runner_of(Fussy).handle(("a",), None, [("a", 1, at(0))], 0).state
    assert state is not None
    with pytest.raises(CorruptionError, match="damaged"):
        runner_of(Fussy).handle(("a",), state[:-1], [], 0)
