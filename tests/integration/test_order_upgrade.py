"""Pipelines that the version before left in the middle of a batch end it, and go on in our order.

It wrote the rows of a batch by (partition, key, value). See
`tests/support/jobs/recording.py` for what is recorded, and how.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import run_here
from tests.support.jobs.recording import CASES, name_of, restore, topics_of
from tests.support.outside.history import Written, read_ledger, read_topic

RECORDED = Path(__file__).parent / "recorded"
ARRIVAL = {"by": [], "ties": "arrival"}
CONTENT = {"by": [], "ties": "content"}
BEGUN = 1
"""The batch in which the earlier version died."""


@pytest.mark.parametrize("delivery", CASES)
def test_a_batch_begun_by_the_version_before_ends_in_its_order(
    delivery: str, broker: RunningBroker, tmp_path: Path
) -> None:
    recording = json.loads((RECORDED / f"{name_of(delivery)}.json").read_text())
    _, output, _ = topics_of(name_of(delivery))
    file = restore(broker.bootstrap_servers, recording, tmp_path)
    before = read_topic(broker.bootstrap_servers, output)
    assert max(each.batch_id for each in before) == BEGUN

    events = run_here(file, broker.bootstrap_servers)

    # Killed between the commits, the batch is compared; killed before both, it is written again.
    batches = [(each["batch_id"], each["is_skipped"]) for each in events.of_kind("batch")]
    assert batches == [(1, delivery == "exactly_once"), (2, False)]
    heads = read_ledger(broker.bootstrap_servers, name_of(delivery))
    orders = {head["batch_id"]: head.get("order") for head in heads if not head["note"]}
    assert orders[BEGUN] in (None, {"batch": CONTENT, "next": ARRIVAL})
    assert orders[2] == {"batch": ARRIVAL, "next": ARRIVAL}

    written = read_topic(broker.bootstrap_servers, output)
    assert (
        len(written) - len(before)
        == {
            "exactly_once": 20,
            "at_least_once": 20 + sum(each.batch_id == BEGUN for each in before),
        }[delivery]
    )
    rows = by_sequence(written)
    assert sorted(map(str, rows)) == sorted(map(str, recording["steps"]))
    check_old_order(written)
    check_arrival([each.row for each in written if each.batch_id == 2], recording["steps"])


def by_sequence(written: Sequence[Written]) -> Sequence[dict[str, Any]]:
    """Each row once: what comes again under a sequence is what came before."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for each in written:
        assert found.setdefault((each.partition, each.sequence), each.row) == each.row
    for partition in {place[0] for place in found}:
        sequences = sorted(number for place, number in found if place == partition)
        assert sequences == list(range(1, len(sequences) + 1))
    return [*found.values()]


def check_old_order(written: Sequence[Written]) -> None:
    for batch_id in (0, BEGUN):
        by_partition: dict[int, dict[int, tuple[bytes, bytes]]] = defaultdict(dict)
        for each in written:
            if each.batch_id == batch_id:
                by_partition[each.partition][each.sequence] = (each.key or b"", each.value or b"")
        for rows in by_partition.values():
            contents = [row for _, row in sorted(rows.items())]
            assert contents == sorted(contents)


def check_arrival(rows: Sequence[dict[str, Any]], steps: Sequence[Mapping[str, Any]]) -> None:
    """The steps of one key and input partition stand as they do there, and would not if sorted."""
    places = {step["step"]: number for number, step in enumerate(steps)}
    ways = defaultdict(list)
    for row in rows:
        ways[row["id"], places[row["step"]] % 2].append(places[row["step"]])
    assert all(way == sorted(way) for way in ways.values())
    sorted_rows = sorted(rows, key=lambda row: (row["id"], row["step"]))
    assert [places[row["step"]] for row in sorted_rows] != [places[row["step"]] for row in rows]
