"""Judges a storm: reads everything back, and keeps the evidence if anything is wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.history.check import check_all
from tests.faults.history.model import Isolation, Record
from tests.faults.history.recorded import History
from tests.faults.history.wire import heads
from tests.faults.history.writes import Expected
from tests.faults.sweep.storm.feeder import MARKS, Fed
from tests.faults.sweep.storm.figures import (
    MAX_SHOWN,
    Latency,
    counts,
    differences,
    latencies,
    latency,
)
from tests.faults.sweep.storm.hands import Stage
from tests.faults.sweep.storm.player import Course
from tests.faults.sweep.storm.reading import count_input, dump
from tests.faults.sweep.storm.workload import Cell, cell_and_row


@dataclass
class Verdict:
    """Figures, and whatever is wrong.

    Args:
        records: in the input log.
        input_repeats: how often an id occurs again: the producer's doing, not ours.
        input_missing: acknowledged and not there: Kafka's doing, not ours.
        input_unknown: given up by the producer's client.
        rows: in the output.
        fired: by kind.
        ends: how often the service ended with each exit code.
        batches: committed.
    """

    anomalies: list[str] = field(default_factory=list)
    records: int = 0
    lost_records: int = 0
    repeated_records: int = 0
    input_repeats: int = 0
    input_missing: int = 0
    input_unknown: int = 0
    rows: int = 0
    batches: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    not_fired: list[str] = field(default_factory=list)
    starts: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    visible: Latency | None = None
    visible_in_quiet: Latency | None = None
    quiet_phases: int = 0


@dataclass(frozen=True)
class Seen:
    """The recordings of a storm.

    Args:
        history: None if it could not be brought to its end.
        began_ms: wall clock at the zero of the history's times.
    """

    folder: Path
    fed: Fed
    course: Course
    history: History | None
    began_ms: int


def judge(stage: Stage, seen: Seen) -> Verdict:
    """Read the input back, recount it, and compare it with all that was recorded."""
    verdict = Verdict(anomalies=list(seen.course.troubles), starts=stage.drivers.started)
    verdict.fired, verdict.not_fired = counts(seen.course.played)
    verdict.ends = {str(code): n for code, n in sorted(stage.drivers.ends.items())}
    verdict.quiet_phases = len(seen.course.quiet_ms)
    if seen.history is None:
        verdict.anomalies.append("the brokers did not come to rest: nothing can be judged")
    else:
        _judge_content(verdict, stage, seen.fed, seen.history)
        _measure(verdict, seen, seen.history)
    if verdict.anomalies:
        keep_evidence(seen.folder / "evidence", stage, seen.history)
    return verdict


def keep_evidence(folder: Path, stage: Stage, history: History | None) -> None:
    """All topics as JSON lines, at either isolation level; the rest is in the storm's folder."""
    folder.mkdir(exist_ok=True)
    if history is not None:
        history.save(folder / "history")
    servers, names = stage.cluster.bootstrap_servers, stage.names
    for topic in (names.input_topic, names.output_topic, names.ledger):
        for level in Isolation:
            file = folder / f"{topic}-{level.value}.jsonl"
            dump(servers, topic, file, level.value)


def _judge_content(verdict: Verdict, stage: Stage, fed: Fed, history: History) -> None:
    counted = count_input(stage.cluster.bootstrap_servers, stage.names.input_topic)
    missing = counted.missing(fed.acknowledged())
    rows = [
        cell_and_row(record.value)
        for partition in history.outputs()
        for record in partition.records
        if record.value is not None
    ]
    verdict.records, verdict.rows = counted.records, len(rows)
    verdict.batches = sum(head.batch_id >= 0 for head in heads(history))
    verdict.input_repeats = sum(times - 1 for times in counted.repeats.values())
    verdict.input_missing, verdict.input_unknown = len(missing), len(fed.unknown)
    closed = counted.closed()
    found = differences(closed, rows)
    verdict.lost_records, verdict.repeated_records = found.lost_records, found.repeated_records
    verdict.anomalies += found.texts[:MAX_SHOWN]
    verdict.anomalies += [f"input {number} was acknowledged and lost" for number in missing][:3]
    expected = Expected(Counter(closed.items()), pair_of=_pair)
    verdict.anomalies += [str(each) for each in check_all(history, expected)][: 3 * MAX_SHOWN]


def _measure(verdict: Verdict, seen: Seen, history: History) -> None:
    (reader,) = history.readers_at(Isolation.COMMITTED)
    first_seen_ms: dict[Cell, int] = {}
    for poll, record in reader.observations():
        if record.topic == history.output_topic and record.value is not None:
            at_ms = seen.began_ms + round(poll.at_s * 1000)
            first_seen_ms.setdefault(cell_and_row(record.value)[0], at_ms)
    lines = (seen.folder / MARKS).read_text().splitlines()
    marks = [(int(at_ms), int(event_ms)) for at_ms, event_ms in map(json.loads, lines)]
    # The input begins before the service has started for the first time.
    taken = [took for took in latencies(marks, first_seen_ms) if took[0] >= seen.course.began_ms]
    verdict.visible = latency(taken)
    verdict.visible_in_quiet = latency(taken, seen.course.quiet_ms)


def _pair(record: Record) -> Hashable:
    return cell_and_row(record.value) if record.value is not None else None
