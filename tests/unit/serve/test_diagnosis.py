"""From facts to causes. How the facts come about is tested with a real Kafka and a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

import onceflow
from onceflow.contracts.connector import OpenTransaction
from onceflow.observe.diagnosis import (
    FENCED_NEWS_MS,
    HUNG_AFTER_MS,
    QUIET_AFTER_MS,
    SILENT_AFTER_MS,
    SINK_FAILURES,
    SLOW_MS,
    Cause,
    Diagnosis,
    diagnose,
)
from onceflow.observe.facts import Facts, InputFacts, OutputFacts, watermark_holder
from onceflow.observe.retention import Forecast
from onceflow.protocol.bulletin import Bulletin, Ending, StateFigures
from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.ledger import (
    NOTHING_COMMITTED,
    BatchPlan,
    HeadEntry,
    OwnerEntry,
    RecordCounts,
    SinkState,
)

NOW_MS = 1_700_000_000_000
OWNER = OwnerEntry(FencingToken(3), "run-3", "here", NOW_MS - 3_600_000, Layout(1, 3))
MB = 1 << 20


def head(batch_id: int = 9, at_ms: int = NOW_MS - 1_000, **changes: Any) -> HeadEntry:
    entry = HeadEntry(
        pipeline="p",
        generation=1,
        batch=BatchKey("q", batch_id),
        token=OWNER.token,
        run_id=OWNER.run_id,
        plan=BatchPlan({}, 5, at_ms),
        sink=SinkState("out", 1, Layout(1, 3), topic_id="id-1"),
        records=RecordCounts(read=100),
        digest="",
        plan_hash="",
    )
    return replace(entry, **changes)


def partition(source: str = "a", at: int = 100, **changes: Any) -> InputFacts:
    facts = InputFacts(source, f"topic-{source}", 0, at, 100, 100, newest_ms=NOW_MS - 1_000)
    return replace(facts, **changes)


def bulletin(age_ms: int = 1_000, **changes: Any) -> Bulletin:
    made = Bulletin("run-3", "here", NOW_MS - age_ms, batch_id=9, records_per_second=1_000.0)
    return replace(made, duration_ms={"triggerExecution": 200}, **changes)


def facts(**changes: Any) -> Facts:
    """Facts of a pipeline that is well, but for the changes."""
    well = Facts(
        NOW_MS,
        head(),
        owner=OWNER,
        recent=[head(n, NOW_MS - (10 - n) * 1_000) for n in range(10)],
        inputs=[partition()],
        output=OutputFacts("id-1", 1, 1),
        bulletin=bulletin(),
    )
    return replace(well, **changes)


def causes(seen: Facts) -> list[StrEnum]:
    return [finding.cause for finding in diagnose(seen)]


def found(seen: Facts, cause: Cause) -> Diagnosis:
    (finding,) = [one for one in diagnose(seen) if one.cause is cause]
    return finding


def ended(exit_code: int, age_ms: int = 100, **changes: Any) -> Ending:
    made = Ending("run-3", "here", NOW_MS - age_ms, exit_code, "SomeError", "a thing failed", "why")
    return replace(made, **changes)


def transaction(**changes: Any) -> OpenTransaction:
    made = OpenTransaction("topic-a", 0, 100, "tx", 7, 2, NOW_MS - HUNG_AFTER_MS, 60_000, 1)
    return replace(made, **changes)


HELD = partition(high_watermark=105, undecided_ms=NOW_MS - HUNG_AFTER_MS)
YOUNG = transaction(started_ms=NOW_MS - HUNG_AFTER_MS + 1)
QUIET = partition("b", newest_ms=NOW_MS - 1_000 - QUIET_AFTER_MS)
SILENT = partition(newest_ms=NOW_MS - 10 * QUIET_AFTER_MS)
EMPTY = partition("b", at=0, last_stable_offset=0, high_watermark=0, newest_ms=None)
UNREAD = partition("b", at=90, newest_ms=NOW_MS - 2 * QUIET_AFTER_MS)
FAR = partition(last_stable_offset=10_000, high_watermark=10_000)
NEAR = partition(last_stable_offset=101, high_watermark=101)
MOVING = [head(n, plan=BatchPlan({}, n, NOW_MS)) for n in range(10)]
OLD = head(at_ms=NOW_MS - SILENT_AFTER_MS)
FORECAST = Forecast(("topic-a", 0), 3_600.0, "retention.ms", 0.1)
OVERTAKEN = {"forecasts": [FORECAST], "inputs": [partition(at=90)]}
STATE = StateFigures(rows=1, memory_bytes=101 * MB)

CASES: dict[str, tuple[dict[str, Any], list[Cause]]] = {
    "a run that is well": ({}, []),
    # Who runs it.
    "an end before the newest bulletin": ({"ending": ended(6, age_ms=10_000)}, []),
    "a refused start, and a run that is well": ({"ending": ended(2, run_id="")}, []),
    "silence": ({"bulletin": bulletin(SILENT_AFTER_MS)}, [Cause.STOPPED]),
    "a short silence": ({"bulletin": bulletin(SILENT_AFTER_MS - 1_000)}, []),
    "a run before its claim": ({"bulletin": bulletin(run_id="")}, []),
    "lag that no run reads": ({"inputs": [partition(at=0)], "ending": ended(6)}, [Cause.STOPPED]),
    "a fenced run": ({"ending": ended(4, FENCED_NEWS_MS, run_id="run-2")}, [Cause.FENCED]),
    "a fenced run long ago": ({"ending": ended(4, FENCED_NEWS_MS + 1, run_id="run-2")}, []),
    "a fenced run whose successor is silent": (
        {"ending": ended(4, FENCED_NEWS_MS * 9, run_id="run-2"), "bulletin": None},
        [Cause.FENCED],
    ),
    # The sink.
    "no output topic": ({"output": OutputFacts(None)}, [Cause.SINK_REFUSES]),
    "another output topic": ({"output": OutputFacts("id-2", 1, 1)}, [Cause.SINK_REFUSES]),
    "too few replicas": ({"output": OutputFacts("id-1", 1, 2)}, [Cause.SINK_REFUSES]),
    # The input.
    "a young transaction": ({"inputs": [HELD], "transactions": [YOUNG]}, []),
    "a transaction ahead of the pipeline": (
        {"inputs": [replace(HELD, position=90)], "transactions": [transaction()]},
        [],
    ),
    "an idle input": ({"inputs": [partition(), QUIET]}, [Cause.IDLE_INPUT]),
    "a watermark that moves": ({"inputs": [partition(), QUIET], "recent": MOVING}, []),
    "a silent partition and a busy one of its source": (
        {"inputs": [SILENT, replace(partition(), partition=1), partition("b")]},
        [],
    ),
    "a source that has something unread": ({"inputs": [partition(), UNREAD]}, []),
    "a query that may have no watermark": (
        {"inputs": [partition(), EMPTY], "recent": [head(plan=BatchPlan({}, 0, NOW_MS))] * 3},
        [],
    ),
    "a few batches that wait": ({"inputs": [FAR]}, []),
    "a few batches that wait at an unknown rate": (
        {"inputs": [replace(FAR, last_stable_offset=400)], "bulletin": None},
        [],
    ),
    "many batches that wait": ({"inputs": [FAR], "bulletin": None}, [Cause.LAG]),
    "a record that waits and no batch": ({"inputs": [NEAR], "recent": [OLD]}, [Cause.LAG]),
    "no new record": ({"inputs": [SILENT]}, [Cause.NO_INPUT]),
    "no record": ({"inputs": [partition(newest_ms=None)]}, [Cause.NO_INPUT]),
    "records that come in": ({"inputs": [SILENT], "arrivals_per_s": 1.0}, []),
    # One that runs may read quickly enough; its bulletin says whether it does.
    "retention, stopped": ({**OVERTAKEN, "bulletin": None}, [Cause.RETENTION]),
    "retention, quick enough": (OVERTAKEN, []),
    "retention, too slow": (
        {**OVERTAKEN, "bulletin": bulletin(retention_left_s=9.0)},
        [Cause.RETENTION],
    ),
    "retention, too late": (
        {**OVERTAKEN, "forecasts": [replace(FORECAST, left_s=0.0)]},
        [Cause.RETENTION],
    ),
    # The batch.
    "state within its budget": (
        {"bulletin": bulletin(state=STATE, memory_budget_bytes=101 * MB)},
        [],
    ),
    "the most serious first": (
        {"inputs": [HELD], "transactions": [transaction()], "output": OutputFacts(None)},
        [Cause.SINK_REFUSES, Cause.HUNG_TRANSACTION],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_causes(case: str) -> None:
    changes, expected = CASES[case]
    assert causes(facts(**changes)) == expected


def test_what_could_not_be_seen_is_no_cause() -> None:
    blind = Facts(NOW_MS, head(), blind={"input": "no answer"})
    assert causes(blind) == []
    assert blind.lag is None


def test_before_the_first_batch_nobody_knows_what_waits() -> None:
    new = facts(inputs=(), recent=[head(NOTHING_COMMITTED)], head=head(NOTHING_COMMITTED))
    assert new.lag is None
    assert found(new, Cause.NO_INPUT).what == "nothing has been read yet"
    stopped = facts(inputs=(), ending=ended(6))
    assert "it is unknown how many records wait" in found(stopped, Cause.STOPPED).evidence


@pytest.mark.parametrize("exit_code", [0, 3, 6, 7, 70])
def test_who_ended_is_not_running(exit_code: int) -> None:
    finding = found(facts(inputs=[partition(at=0)], ending=ended(exit_code)), Cause.STOPPED)
    assert f"with exit code {exit_code}: why" in finding.evidence[0]
    assert finding.evidence[1] == "100 records wait"


def test_two_runs_that_tell_their_figures() -> None:
    seen = facts(bulletin=bulletin(run_id="run-2"))
    assert "run_id run-2" in found(seen, Cause.FENCED).evidence[1]


@pytest.mark.parametrize("what", SINK_FAILURES)
def test_a_run_that_the_sink_ended_in_the_words_of_the_code(what: str) -> None:
    seen = facts(ending=ended(3, what=f"{what} of it"))
    assert causes(seen) == [Cause.SINK_REFUSES, Cause.STOPPED]
    assert any(what in text for text in _code())


def _code() -> Iterator[str]:
    service = Path(onceflow.__file__).parent
    connectors = service.parents[1] / "connectors" / "onceflow_connectors"
    for folder in (service / "runtime", connectors / "kafka"):
        yield from (file.read_text() for file in folder.rglob("*.py"))


@pytest.mark.parametrize(
    ("changes", "cure"),
    [
        ({}, "does so in 50 s"),
        ({"timeout_ms": 5_000}, "its time is up"),
        ({"timeout_ms": None, "transactional_id": None, "coordinator": None}, "no coordinator"),
    ],
)
def test_a_hung_transaction(changes: dict[str, Any], cure: str) -> None:
    seen = facts(inputs=[HELD], transactions=[transaction(**changes)])
    finding = found(seen, Cause.HUNG_TRANSACTION)
    assert cure in finding.cure
    assert "producer id 7, producer epoch 2" in finding.evidence[1]


def test_a_hung_transaction_whose_producer_cannot_be_asked_for() -> None:
    seen = facts(inputs=[HELD], blind={"transactions": "no kafka-python"})
    assert "no kafka-python" in found(seen, Cause.HUNG_TRANSACTION).evidence[1]


def test_the_oldest_of_several_transactions_is_the_one_that_holds() -> None:
    others = [transaction(start_offset=103, transactional_id="b"), transaction()]
    seen = facts(inputs=[HELD], transactions=others)
    assert "transactional id tx," in found(seen, Cause.HUNG_TRANSACTION).evidence[1]


def test_an_idle_input_holds_the_watermark() -> None:
    seen = facts(inputs=[partition(), QUIET])
    assert "topic-b-0, 10 s older" in found(seen, Cause.IDLE_INPUT).evidence[0]
    holder = watermark_holder(seen)
    assert holder is not None
    assert (holder.source, holder.behind_ms) == ("b", QUIET_AFTER_MS)


def test_an_input_that_never_had_a_record_holds_it_at_nothing() -> None:
    recent = [head(plan=BatchPlan({}, 0, NOW_MS))] * 3
    timed = frozenset({"a", "b"})
    seen = facts(inputs=[partition(), EMPTY], recent=recent, event_time_sources=timed)
    assert "no record at all" in found(seen, Cause.IDLE_INPUT).evidence[0]


@pytest.mark.parametrize(
    ("rate", "arrivals", "text"),
    [(10.0, 0.0, "in 17 min"), (10.0, 5.0, "in 33 min"), (10.0, 10.0, "never catches up")],
)
def test_lag(rate: float, arrivals: float, text: str) -> None:
    far = partition(last_stable_offset=10_100, high_watermark=10_100)
    seen = facts(inputs=[far], bulletin=bulletin(records_per_second=rate), arrivals_per_s=arrivals)
    assert text in found(seen, Cause.LAG).what


def test_lag_before_the_first_batch() -> None:
    registered = head(batch_id=-1, plan=BatchPlan({}, 0, 0))
    finding = found(facts(inputs=[NEAR], recent=[registered]), Cause.LAG)
    assert "no batch was committed" in finding.evidence


@pytest.mark.parametrize("part", ["walCommit", "commitOffsets", "upload"])
@pytest.mark.parametrize(
    ("spent_ms", "batch_ms", "is_slow"),
    [
        (SLOW_MS, 2 * SLOW_MS, True),
        (SLOW_MS - 1, 2 * SLOW_MS, False),
        (9 * SLOW_MS, 20 * SLOW_MS, False),
    ],
)
def test_slow_checkpoint_storage(part: str, spent_ms: int, batch_ms: int, is_slow: bool) -> None:
    times = {"triggerExecution": batch_ms, part: spent_ms}
    upload_ms = spent_ms if part == "upload" else 0
    state = StateFigures(rows=1, commit_ms=upload_ms, upload_ms=upload_ms)
    seen = facts(bulletin=replace(bulletin(), duration_ms=times, state=state))
    assert causes(seen) == ([Cause.CHECKPOINT_SLOW] if is_slow else [])


def test_state_that_takes_most_of_a_batch() -> None:
    state = StateFigures(rows=5_000, commit_ms=1_500, upload_ms=100)
    told = bulletin(state=state, first_state_rows=1_000)
    seen = facts(bulletin=replace(told, duration_ms={"triggerExecution": 2_000}))
    finding = found(seen, Cause.STATE_TOO_LARGE)
    assert "5,000 rows of state, +4,000 since the run began" in finding.evidence
    assert "of which the state took 1,400 ms" in finding.evidence[2]


def test_state_beyond_the_memory_budget() -> None:
    seen = facts(bulletin=bulletin(state=STATE, memory_budget_bytes=100 * MB))
    assert "spark.driver_memory is 100 MiB" in found(seen, Cause.STATE_TOO_LARGE).evidence
