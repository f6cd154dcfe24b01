"""Judges an output that was read back, by the checks of `tests.faults.history`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.faults.history.anomaly import Anomaly
from tests.faults.history.ledger import ledger_mismatch
from tests.faults.history.model import FinalPartition, Place, Record
from tests.faults.history.recorded import History
from tests.faults.history.wire import header_of
from tests.faults.history.writes import (
    Expected,
    duplicate,
    lost_write,
    nonmonotonic_sequence,
    sequence_hole,
    torn_batch,
)
from tests.support.outside.history import Written

_OUTPUT = "output"


def anomalies(
    written: Sequence[Written],
    heads: Sequence[dict[str, Any]] = (),
    expected: Expected | None = None,
) -> list[Anomaly]:
    """Find what is lost, repeated, torn, out of sequence or written by another producer.

    Args:
        written: every committed record of the output topic.
        heads: every head of its ledger, oldest first; without, nothing is compared with it.
        expected: what an oracle computed; without, contents are not compared.
    """
    history = _history(written, heads)
    checks = (nonmonotonic_sequence, sequence_hole, torn_batch, ledger_mismatch)
    found = [anomaly for check in checks for anomaly in check(history)]
    found += [*_foreign(history), *_miscounted(written, heads)]
    if expected is not None:
        found += lost_write(history, expected) + duplicate(history, expected)
    return found


def account_faults(heads: Sequence[dict[str, Any]], counted: Mapping[str, int]) -> list[str]:
    """Name each count of the ledger that differs from what was counted without it.

    Args:
        heads: of the ledger, oldest first; the last one is up to date.
        counted: by the names of the ledger's counts.
    """
    totals = heads[-1]["totals"]
    by_batch: Counter[str] = Counter()
    for head in heads:
        by_batch.update(head["records"])
    return [
        f"{name}: {by_batch[name]} in all batches, {total} in the totals"
        for name, total in totals.items()
        if by_batch[name] != total
    ] + [
        f"{name}: {totals[name]} by the ledger, {count} counted"
        for name, count in counted.items()
        if totals[name] != count
    ]


def _foreign(history: History) -> Iterator[Anomaly]:
    for partition in history.outputs():
        for record in partition.records:
            if header_of(record) is None:
                where = f"partition {record.partition} offset {record.offset}"
                yield Anomaly(
                    "foreign_record", f"{where}: expected a header, found {record.header!r}"
                )


def _miscounted(written: Sequence[Written], heads: Sequence[dict[str, Any]]) -> Iterator[Anomaly]:
    """Compare with the first head of a batch: one that only changes what comes next writes none."""
    visible = Counter((each.generation, each.batch_id) for each in written if each.header)
    told: dict[tuple[int, int], int] = {}
    for head in heads:
        told.setdefault((head["generation"], head["batch_id"]), head["records"]["written"])
    for (generation, batch_id), count in told.items():
        if batch_id >= 0 and visible[generation, batch_id] != count:
            batch = f"batch {batch_id} of generation {generation}"
            found = visible[generation, batch_id]
            yield Anomaly("torn_batch", f"{batch}: expected {count} records, found {found}")


def _history(written: Sequence[Written], heads: Sequence[dict[str, Any]]) -> History:
    history = History(_OUTPUT, heads[-1]["pipeline"] if heads else None)
    places = {(_OUTPUT, record.partition) for record in written}
    places |= {(_OUTPUT, int(number)) for head in heads for number in head["sink"]["sequence"]}
    records: dict[Place, list[Record]] = {place: [] for place in places}
    for each in written:
        record = Record(_OUTPUT, each.partition, each.offset, each.key, each.value, each.header, 0)
        records[record.place].append(record)
    if (ledger := history.ledger_topic) is not None:
        records[ledger, 0] = [
            Record(ledger, 0, offset, b"head", json.dumps(head).encode(), None, 0)
            for offset, head in enumerate(heads)
        ]
    for place, own in records.items():
        end = own[-1].offset + 1 if own else 0
        history.final[place] = FinalPartition(*place, 0, end, end, own)
    return history
