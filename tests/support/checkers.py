"""Anomalies of an exactly-once output, as pure functions over what was read back.

Named as in Jepsen. Each returns the evidence; an empty list means the anomaly is absent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.support.history import Written


def canonical(row: dict[str, Any]) -> str:
    """A row as text that can be counted and compared."""
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def lost_writes(expected: Iterable[dict[str, Any]], found: Iterable[dict[str, Any]]) -> list[str]:
    """Rows that the oracle computed and nobody can read."""
    missing = Counter(map(canonical, expected)) - Counter(map(canonical, found))
    return sorted(missing.elements())


def duplicates(expected: Iterable[dict[str, Any]], found: Iterable[dict[str, Any]]) -> list[str]:
    """Rows that can be read more often than the oracle computed them, or that it never computed."""
    surplus = Counter(map(canonical, found)) - Counter(map(canonical, expected))
    return sorted(surplus.elements())


def sequence_faults(written: Sequence[Written]) -> list[str]:
    """Sequences of a partition that do not run 1, 2, 3, ... in offset order."""
    faults = []
    for partition in sorted({w.partition for w in written}):
        ordered = sorted((w for w in written if w.partition == partition), key=lambda w: w.offset)
        for position, record in enumerate(ordered, start=1):
            if record.sequence != position:
                faults.append(
                    f"partition {partition} offset {record.offset}:"
                    f" sequence {record.sequence}, expected {position}"
                )
                break
    return faults


def ledger_faults(heads: Sequence[dict[str, Any]], written: Sequence[Written]) -> list[str]:
    """Where the ledger and the output topic disagree, or the ledger with itself."""
    faults = []
    tail: dict[int, int] = {}
    for record in written:
        tail[record.partition] = max(tail.get(record.partition, 0), record.sequence)
    recorded = {int(p): last for p, (_, last) in heads[-1]["sink"]["sequence"].items()}
    if {p: n for p, n in recorded.items() if n} != tail:
        faults.append(f"newest head says {recorded}, the topic ends at {tail}")
    for before, after in pairwise(heads):
        if after["generation"] != before["generation"] or after["note"]:
            continue
        if after["batch_id"] not in (before["batch_id"] + 1, -1):
            faults.append(f"batch {after['batch_id']} follows batch {before['batch_id']}")
        faults += _range_faults(before, after)
    return faults


def torn_batches(heads: Sequence[dict[str, Any]], written: Sequence[Written]) -> list[str]:
    """Batches of which another number of records is visible than the ledger says.

    By the first head of a batch: one that only changes what comes next writes no records.
    """
    visible = Counter(record.batch_id for record in written)
    committed: dict[int, int] = {}
    for head in heads:
        committed.setdefault(head["batch_id"], head["records"]["written"])
    return [
        f"batch {batch_id}: {visible[batch_id]} records visible, {count} committed"
        for batch_id, count in committed.items()
        if batch_id >= 0 and visible[batch_id] != count
    ]


def account_faults(heads: Sequence[dict[str, Any]], counted: Mapping[str, int]) -> list[str]:
    """Where the ledger's account of all records differs from what was counted without it.

    Args:
        heads: of the ledger, oldest first; the last one is up to date.
        counted: by the names of the account.
    """
    told = heads[-1]["totals"]
    by_batch: Counter[str] = Counter()
    for head in heads:
        by_batch.update(head["records"])
    sums = [
        f"{name}: {by_batch[name]} in all batches, {told[name]} in the totals"
        for name in told
        if by_batch[name] != told[name]
    ]
    return sums + [
        f"{name}: {told[name]} by the ledger, {count} counted"
        for name, count in counted.items()
        if told[name] != count
    ]


def _range_faults(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    if before["batch_id"] < 0:
        return []
    ends = {
        (name, topic, partition): bounds[1]
        for name, topics in before["sources"].items()
        for topic, ranges in topics.items()
        for partition, bounds in ranges.items()
    }
    return [
        f"batch {after['batch_id']} reads {topic}-{partition} from {bounds[0]},"
        f" batch {before['batch_id']} ended at {ends[name, topic, partition]}"
        for name, topics in after["sources"].items()
        for topic, ranges in topics.items()
        for partition, bounds in ranges.items()
        if (name, topic, partition) in ends and ends[name, topic, partition] != bounds[0]
    ]
