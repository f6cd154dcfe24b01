"""Checks of what was written, on what a fresh reader can read after quiesce."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from tests.faults.history.anomaly import Anomaly
from tests.faults.history.model import FinalPartition, Input, Outcome, Record
from tests.faults.history.recorded import History
from tests.faults.history.wire import Batch, Head, batch_of, heads, own_records

Pair: TypeAlias = Hashable
"""What is counted and compared: (key, value), unless the oracle says otherwise."""
SHOWN = 5
"""Places of one repeated record that a message names."""


def key_and_value(record: Record) -> Pair:
    """The bytes as they are."""
    return record.key, record.value


@dataclass(frozen=True)
class Expected:
    """An oracle's demands on the output.

    Args:
        must: how often each pair has to be there.
        may: how often more it may be there, since the outcome of its input is unknown.
        pair_of: what of a record is compared; e.g. its value as canonical JSON.
    """

    must: Counter[Pair]
    may: Counter[Pair] = field(default_factory=Counter)
    pair_of: Callable[[Record], Pair] = key_and_value

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Expected:
        """For an output whose values are these rows as JSON, each once; keys do not count."""
        return cls(Counter(map(_canonical, rows)), pair_of=_row)

    @classmethod
    def of_inputs(
        cls,
        inputs: Iterable[Input],
        outputs_of: Callable[[Input], Iterable[Pair]],
        pair_of: Callable[[Record], Pair] = key_and_value,
    ) -> Expected:
        """For a pipeline that treats each input by itself. A failed input must leave nothing."""
        counts: dict[Outcome, Counter[Pair]] = {outcome: Counter() for outcome in Outcome}
        for sent in inputs:
            counts[sent.outcome].update(outputs_of(sent))
        return cls(counts[Outcome.OK], counts[Outcome.UNKNOWN], pair_of)


def _row(record: Record) -> Pair:
    return None if record.value is None else _canonical(json.loads(record.value))


def _canonical(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def lost_write(history: History, expected: Expected) -> list[Anomaly]:
    """Records that are demanded, or reported as committed, and that no reader can find."""
    found = _found(history, expected)
    lost = [
        f"{history.output_topic}: expected {wanted} of {pair!r}, found {found[pair]}"
        for pair, wanted in expected.must.items()
        if found[pair] < wanted
    ]
    if history.ledger():
        committed = {head.batch_id for head in heads(history)}
        lost += [
            f"batch {attempt.batch_id} of run {attempt.run_id}: acknowledged as committed,"
            " expected a head of it, found none"
            for attempt in history.attempts
            if attempt.outcome is Outcome.OK and attempt.batch_id not in committed
        ]
    return [Anomaly("lost_write", text) for text in lost]


def duplicate(history: History, expected: Expected) -> list[Anomaly]:
    """Records that occur more often than the oracle allows, or that it never computed."""
    at_most = expected.must + expected.may
    places: dict[Pair, list[str]] = {
        pair: [] for pair, count in _found(history, expected).items() if count > at_most[pair]
    }
    for record in _committed(history):
        if (pair := expected.pair_of(record)) in places:
            places[pair].append(_at(record))
    return [
        Anomaly(
            "duplicate",
            f"expected at most {at_most[pair]} of {pair!r}, found {len(found)} at"
            f" {', '.join(found[:SHOWN])}",
        )
        for pair, found in places.items()
    ]


def nonmonotonic_sequence(history: History) -> list[Anomaly]:
    """Sequences of a partition that do not rise with the offset, or are of another lineage."""
    return [
        Anomaly(
            "nonmonotonic_sequence",
            f"{_at(later)} batch {after.batch_id}: expected a sequence above {before.sequence}"
            f" of lineage {before.lineage}, found {after.sequence} of {after.lineage}",
        )
        for partition in history.outputs()
        for (_, before), (later, after) in pairwise(own_records(history, partition))
        if after.sequence <= before.sequence or after.lineage != before.lineage
    ]


def sequence_hole(history: History) -> list[Anomaly]:
    """Sequences that no record of the partition has, between the first and the highest.

    The first is 1, unless retention has deleted records.
    """
    return [
        Anomaly(
            "sequence_hole",
            f"{partition.topic}-{partition.partition}: expected sequence {before + 1}"
            f" to {after - 1} between {before} and {after}, found none of them",
        )
        for partition in history.outputs()
        for before, after in pairwise(_sequences(history, partition))
        if after > before + 1
    ]


def torn_batch(history: History) -> list[Anomaly]:
    """Batches of which a part is visible: fewer records than the head says, or no head at all."""
    if history.pipeline is None:
        return []
    found = heads(history)
    committed = {(head.generation, head.batch_id): head for head in found}
    # A ledger that was rebuilt begins with a head that says so, and knows no batch before it.
    known_from = next(iter(committed)) if found and found[0].note else (0, 0)
    return [
        torn
        for partition in history.outputs()
        for torn in (
            *_without_head(history, partition, committed, known_from),
            *_too_few(history, partition, committed),
        )
    ]


def _without_head(
    history: History, partition: FinalPartition, committed: dict[Batch, Head], known_from: Batch
) -> list[Anomaly]:
    visible = Counter(batch_of(header) for _, header in own_records(history, partition))
    return [
        Anomaly(
            "torn_batch",
            f"{partition.topic}-{partition.partition} batch {batch_id} generation {generation}:"
            f" expected a head in the ledger, found {count} records and no head",
        )
        for (generation, batch_id), count in visible.items()
        if (generation, batch_id) not in committed and (generation, batch_id) >= known_from
    ]


def _too_few(
    history: History, partition: FinalPartition, committed: dict[Batch, Head]
) -> list[Anomaly]:
    # A record that is there twice does not make up for one that is missing.
    distinct = {(batch_of(h), h.sequence) for _, h in own_records(history, partition)}
    visible = Counter(batch for batch, _ in distinct)
    # What retention has deleted is not torn.
    oldest = min((sequence for _, sequence in distinct), default=1) if partition.log_start else 1
    torn = []
    for batch, head in committed.items():
        first, last = head.sequence.get(partition.partition, (1, 0))
        first = max(first, oldest)
        if visible[batch] < last - first + 1:
            torn.append(
                f"{partition.topic}-{partition.partition} batch {head.batch_id}: expected"
                f" {last - first + 1} records, sequence {first} to {last}, as the {head} says,"
                f" found {visible[batch]}"
            )
    return [Anomaly("torn_batch", text) for text in torn]


def _sequences(history: History, partition: FinalPartition) -> list[int]:
    found = sorted(header.sequence for _, header in own_records(history, partition))
    return found if partition.log_start else [0, *found]


def _committed(history: History) -> Iterator[Record]:
    for partition in history.outputs():
        yield from partition.records


def _found(history: History, expected: Expected) -> Counter[Pair]:
    return Counter(expected.pair_of(record) for record in _committed(history))


def _at(record: Record) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}"
