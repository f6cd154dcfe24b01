"""Checks of what readers saw while the faults happened, against what is there in the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise

from tests.faults.history.anomaly import Anomaly
from tests.faults.history.model import (
    Ends,
    Isolation,
    Outcome,
    Place,
    Poll,
    Probe,
    Reader,
    Record,
)
from tests.faults.history.recorded import History
from tests.faults.history.wire import heads

STALE_LEADER_S = 30.0
"""So long a broker that was cut off may answer as a leader that it is no more: its session with
the controllers ends after nine seconds, and clients then ask elsewhere."""


def aborted_read(history: History) -> list[Anomaly]:
    """A committed reader saw a record that is not in the final committed log.

    Also the head of a batch whose every attempt by that run certainly failed. A record that was
    seen too early and is in the final log is a `dirty_read` and not this.
    """
    final = _final_offsets(history)
    seen = [
        f"{_at(record)}: {reader.name} saw {_content(record)} in its poll {poll.index},"
        " expected it in the final committed log, found nothing there"
        for reader in history.readers_at(Isolation.COMMITTED)
        for poll, record in reader.observations()
        if _is_gone(history, final, record)
    ]
    return [Anomaly("aborted_read", text) for text in (*seen, *_failed_heads(history))]


def dirty_read(history: History) -> list[Anomaly]:
    """A committed reader saw a record whose transaction was not decided yet, and later committed.

    The evidence is a last stable offset at or below the record, told by the leader when it was
    asked after the record had been seen.
    """
    final = _final_offsets(history)
    trusted = {place: _trusted(history.probes, place) for place in final}
    return [
        Anomaly(
            "dirty_read",
            f"{_at(record)}: {reader.name} saw {_content(record)} in its poll {poll.index},"
            f" expected it below the last stable offset, found that at {told.last_stable_offset}"
            f" in probe {probe.index} afterwards",
        )
        for reader in history.readers_at(Isolation.COMMITTED)
        for poll, record, probe, told in _with_next_probe(reader, trusted)
        if record.offset >= told.last_stable_offset and record.offset in final[record.place]
    ]


def inconsistent_offsets(history: History) -> list[Anomaly]:
    """One offset with two contents: by two readers of any level, or by two polls of one."""
    known = _final_offsets(history)
    inconsistent = []
    for reader in history.readers:
        for poll, record in reader.observations():
            before = known.setdefault(record.place, {}).setdefault(record.offset, record)
            if before is not record and before != record:
                inconsistent.append(
                    f"{_at(record)}: {reader.name} saw {_content(record)} in its poll {poll.index},"
                    f" expected {_content(before)}, which another reader or poll saw there"
                )
    return [Anomaly("inconsistent_offsets", text) for text in inconsistent]


def reader_disagreement(history: History) -> list[Anomaly]:
    """A committed reader saw other offsets, or in another order, than the final reader.

    What it saw and the final reader did not is an `aborted_read`; another content at the same
    offset is `inconsistent_offsets`. Together the three are: both saw the same sequence.
    """
    readers = history.readers_at(Isolation.COMMITTED)
    if not readers:
        return [Anomaly("reader_disagreement", "expected a committed reader, found none")]
    return [
        Anomaly("reader_disagreement", text)
        for reader in readers
        for text in (*_backwards(reader), *_skipped(history, reader), *_short(reader))
    ]


def _backwards(reader: Reader) -> Iterator[str]:
    newest: dict[Place, int] = {}
    for poll, record in reader.observations():
        before = newest.get(record.place, -1)
        if record.offset <= before:
            yield (
                f"{_at(record)}: {reader.name} saw it in its poll {poll.index}, expected an offset"
                f" above {before}"
            )
        newest[record.place] = max(before, record.offset)


def _skipped(history: History, reader: Reader) -> Iterator[str]:
    seen: dict[Place, set[int]] = defaultdict(set)
    for _, record in reader.observations():
        seen[record.place].add(record.offset)
    for place, partition in history.final.items():
        position = reader.positions.get(place, 0)
        for record in partition.records:
            if record.offset < position and record.offset not in seen[place]:
                yield (
                    f"{_at(record)}: expected {reader.name}, which read up to {position}, to have"
                    f" seen {_content(record)}, found that it had not"
                )


def _short(reader: Reader) -> Iterator[str]:
    for (topic, partition), goal in reader.goal.items():
        position = reader.positions.get((topic, partition), 0)
        if position < goal:
            yield (
                f"{topic}-{partition}: expected {reader.name} to read up to {goal}, found it at"
                f" {position}"
            )


def _failed_heads(history: History) -> list[str]:
    outcomes: dict[tuple[int, str], set[Outcome]] = defaultdict(set)
    for attempt in history.attempts:
        outcomes[attempt.batch_id, attempt.run_id].add(attempt.outcome)
    return [
        f"{head.place}: expected no head of batch {head.batch_id} of run {head.run_id}, whose every"
        " attempt failed, found one"
        for head in heads(history)
        if outcomes[head.batch_id, head.run_id] == {Outcome.FAILED}
    ]


def _is_gone(history: History, final: dict[Place, dict[int, Record]], record: Record) -> bool:
    partition = history.final.get(record.place)
    if partition is None or record.offset < partition.log_start:
        return False
    known = final[record.place]
    if record.offset in known:
        return False
    # Compaction removes an entry of the ledger once a newer one has the same key.
    is_ledger = record.topic == history.ledger_topic
    return not (
        is_ledger
        and any(newer.key == record.key for newer in known.values() if newer.offset > record.offset)
    )


def _with_next_probe(
    reader: Reader, trusted: dict[Place, list[tuple[Probe, Ends]]]
) -> Iterator[tuple[Poll, Record, Probe, Ends]]:
    """Each record with the first trusted probe that was begun after it had been seen."""
    following = dict.fromkeys(trusted, 0)
    for poll, record in reader.observations():
        probes = trusted.get(record.place, [])
        number = following.get(record.place, 0)
        while number < len(probes) and probes[number][0].at_s < poll.at_s:
            number += 1
        following[record.place] = number
        if number < len(probes):
            yield poll, record, *probes[number]


def _trusted(probes: list[Probe], place: Place) -> list[tuple[Probe, Ends]]:
    """Without the answers that a deposed leader may have given, around a change of leader, and
    those that are below an earlier answer."""
    told = [(probe, probe.ends[place]) for probe in probes if place in probe.ends]
    changes_s = [
        after.at_s
        for (_, old), (after, new) in pairwise(told)
        if new.leader_epoch != old.leader_epoch
    ]
    newest_epochs = accumulate((ends.leader_epoch for _, ends in told), max)
    furthest = accumulate((ends.last_stable_offset for _, ends in told), max)
    return [
        (probe, ends)
        for (probe, ends), *newest in zip(told, newest_epochs, furthest, strict=True)
        if [ends.leader_epoch, ends.last_stable_offset] == newest
        and not any(0 < at_s - probe.at_s <= STALE_LEADER_S for at_s in changes_s)
    ]


def _final_offsets(history: History) -> dict[Place, dict[int, Record]]:
    return {
        place: {record.offset: record for record in partition.records}
        for place, partition in history.final.items()
    }


def _at(record: Record) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}"


def _content(record: Record) -> str:
    header = None if record.header is None else record.header.hex()
    return f"key {record.key!r} value {record.value!r} header {header}"
