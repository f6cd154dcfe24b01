"""Checks of the ledger, and of what is left open when everything is quiet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.faults.history.anomaly import Anomaly
from tests.faults.history.recorded import History
from tests.faults.history.wire import Head, heads, own_records, owners


def two_owners(history: History) -> list[Anomaly]:
    """A driver committed after its successor had: runs must write heads in the order of claims.

    A claim without a head is right: that driver was fenced before it committed anything. A head
    without a claim is not.
    """
    claims = [(owner.run_id, owner.token) for owner in owners(history)]
    found = heads(history)
    anomalies, position = [], 0
    for before, head in zip([None, *found], found, strict=False):
        if before is not None and before.run_id == head.run_id and before.token == head.token:
            continue
        later = [i for i in range(position, len(claims)) if claims[i] == (head.run_id, head.token)]
        if later:
            position = later[0]
        else:
            newest = f"after the {before}" if before else "as the first head"
            anomalies.append(
                Anomaly(
                    "two_owners",
                    f"{head} {newest}: expected the owner of a later claim, found that its run"
                    f" {_claim(claims[:position], head)}",
                )
            )
    return anomalies


def ledger_mismatch(history: History) -> list[Anomaly]:
    """The newest head and the last committed header of a partition differ, or heads do not follow
    one another: each batch once, from where the one before has ended."""
    found = heads(history)
    texts = list(_mismatched_tails(history, found[-1])) if found else []
    texts += [text for before, after in pairwise(found) for text in _breaks(before, after)]
    return [Anomaly("ledger_mismatch", text) for text in texts]


def hung_transaction(history: History) -> list[Anomaly]:
    """A transaction that is still undecided after quiesce."""
    return [
        Anomaly(
            "hung_transaction",
            f"{transaction.transactional_id}: expected no open transaction after quiesce, found"
            f" {transaction.state} on {_places(transaction.places)}",
        )
        for transaction in history.transactions
    ]


def lagging_stable_offset(history: History) -> list[Anomaly]:
    """A partition whose committed readers are held back after quiesce."""
    return [
        Anomaly(
            "lagging_stable_offset",
            f"{topic}-{partition}: expected the last stable offset at the high watermark"
            f" {end.high_watermark} after quiesce, found {end.last_stable_offset}",
        )
        for (topic, partition), end in history.final.items()
        if end.last_stable_offset < end.high_watermark
    ]


def _claim(claims: list[tuple[str, int]], head: Head) -> str:
    if (head.run_id, head.token) in claims:
        return "had been taken over"
    return "never claimed the ledger with this token, or was taken over"


def _mismatched_tails(history: History, newest: Head) -> Iterator[str]:
    tails = dict.fromkeys(newest.sequence, 0)
    places = dict.fromkeys(newest.sequence, "no record")
    for partition in history.outputs():
        for record, header in own_records(history, partition):
            tails[partition.partition] = header.sequence
            places[partition.partition] = f"offset {record.offset}, batch {header.batch_id}"
    for number, tail in tails.items():
        _, last = newest.sequence.get(number, (1, 0))
        if last != tail and not (tail == 0 and _is_emptied(history, number)):
            yield (
                f"{history.output_topic}-{number}: expected the last committed record to have"
                f" sequence {last}, as the newest {newest} says, found {tail} ({places[number]})"
            )


def _is_emptied(history: History, number: int) -> bool:
    """Whether retention has deleted records, so that the last may be gone."""
    partition = history.final.get((history.output_topic, number))
    return partition is not None and partition.log_start > 0


def _breaks(before: Head, after: Head) -> Iterator[str]:
    if after.generation != before.generation or after.note:
        return
    registers_again = after.batch_id == before.batch_id == -1
    if after.batch_id != before.batch_id + 1 and not registers_again:
        yield f"{after}: expected batch {before.batch_id + 1}, since it follows the {before}"
    for source, (first, _) in after.ranges.items():
        end = before.ranges.get(source, (first, first))[1]
        if before.batch_id >= 0 and first != end:
            name, topic, partition = source
            yield (
                f"{after}: expected {name} to read {topic}-{partition} from {end}, where the"
                f" {before} ended, found {first}"
            )


def _places(places: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in places) or "no partition"
