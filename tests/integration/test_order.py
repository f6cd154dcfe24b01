"""Records of one key come out in the order of their input partition."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceflow.crashpoints import CrashPoint
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import run_here, run_until_it_fails
from tests.support.jobs.orders import OrdersJob
from tests.support.outside.history import Written

ARRIVAL = {"by": [], "ties": "arrival"}
PER_MINUTE = """\
  SELECT id, window, count(*) AS n FROM (
    SELECT * FROM orders UNION ALL SELECT * FROM returns
  ) GROUP BY id, window(at, '1 minute')"""


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path) -> OrdersJob:
    made = OrdersJob(broker.bootstrap_servers, tmp_path, f"order-{uuid.uuid4().hex[:8]}")
    made.create_input()
    return made


def test_records_of_one_key_keep_their_order_across_batches_and_replays(
    job: OrdersJob, random: Random
) -> None:
    job.produce(random, 400)
    file = job.write_file()
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.BEFORE_COMMIT, 3)
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 1)
    events = run_here(file, job.bootstrap_servers)
    job.produce(random, 200)
    run_here(file, job.bootstrap_servers)

    assert events.of_kind("batch")[0]["is_skipped"]
    heads = job.heads()
    assert {json.dumps(head["order"]["batch"]) for head in heads[1:]} == {json.dumps(ARRIVAL)}
    assert len({head["batch_id"] for head in heads}) > 4
    job.check_order()


def test_windows_come_in_the_order_of_their_time_and_another_order_begins_with_a_batch(
    job: OrdersJob, random: Random
) -> None:
    """Outside a transaction, a batch that was begun has its sequences: it must end as it began."""
    job.produce(random, 600)
    sink, extra = "  emit: updates\n", "delivery: at_least_once\n"
    file = job.write_file(PER_MINUTE, sink, extra)
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.BEFORE_COMMIT, 3)
    begun = newest(job)
    file = job.write_file(PER_MINUTE, f"{sink}  order_by: [n desc, id]\n", extra)
    run_here(file, job.bootstrap_servers)
    last = newest(job)
    job.produce(random, 80)
    file = job.write_file(PER_MINUTE, f"{sink}  order_by: [window.start desc]\n", extra)
    run_here(file, job.bootstrap_servers)

    def by_time(each: Written) -> Any:
        return each.row["window"]["end"], each.key, each.value

    def by_count(each: Written) -> Any:
        return -each.row["n"], each.row["id"], *by_time(each)

    orders: Mapping[range, Callable[[Written], Any]] = {
        range(begun + 1): by_time,
        range(begun + 1, last + 1): by_count,
    }
    written = once(job.written())
    assert begun < last < newest(job)
    for batches, order in orders.items():
        for rows in by_batch_and_partition(written, batches):
            assert rows == sorted(rows, key=order)
    for rows in by_batch_and_partition(written, range(last + 1, newest(job) + 1)):
        starts = [each.row["window"]["start"] for each in rows]
        assert starts == sorted(starts, reverse=True)
    notes = [head["note"] for head in job.heads() if head["note"]]
    told = "window.start desc, window.end, content"
    assert notes == [f"records are written in another order from here on: {told}"]


def newest(job: OrdersJob) -> int:
    return max(each.batch_id for each in job.written())


def once(written: Sequence[Written]) -> Sequence[Written]:
    """Without repeats, of which each is what came before under its sequence."""
    found: dict[tuple[int, int], Written] = {}
    for each in written:
        first = found.setdefault((each.partition, each.sequence), each)
        assert (first.batch_id, first.key, first.value) == (each.batch_id, each.key, each.value)
    assert len(found) < len(written)
    return sorted(found.values(), key=lambda each: (each.batch_id, each.sequence))


def by_batch_and_partition(
    written: Sequence[Written], batches: range
) -> Iterable[Sequence[Written]]:
    found = defaultdict(list)
    for each in written:
        if each.batch_id in batches:
            found[each.batch_id, each.partition].append(each)
    return found.values()
