"""When an enrichment asks its questions, on a real service: their order and their rate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs.delivery_process import PARTITIONS, numbered
from tests.support.jobs.enriching import GOOD, Enriching

KEYS = 4
DELAYS_S = (0.03, 0.0, 0.01)
"""So that answers would overtake one another if questions did not wait."""


@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_questions_wait_for_those_before_them_as_the_order_says(
    enriching: Enriching, order: str
) -> None:
    enriching.set_up(ask=f"order: {order}")
    slow = [replace(GOOD, path=f"/{n}?", delay_s=DELAYS_S[n % 3]) for n in range(1, 41)]
    enriching.service.obey(*slow)
    for partition in range(PARTITIONS):
        records = numbered(range(1, 41), partition)
        keyed = [replace(each, key=b"%d" % (n % KEYS)) for n, each in enumerate(records, 1)]
        enriching.kafka.write(enriching.topic, keyed)
    enriching.deliver()
    enriching.assert_each_record_has_one_answer()
    lanes: dict[tuple[int, ...], list[int]] = {}
    waiting: dict[int, tuple[int, ...]] = {}
    most = {"lane": 0, "all": 0}
    asked_about = {number: _asked_about(path) for number, path in enriching.requests().items()}
    for event in enriching.service.events():
        number = event["number"]
        if number not in asked_about:
            continue
        if event["event"] == "answered":
            del waiting[number]
            continue
        n, partition = asked_about[number]
        lane = (partition, n % KEYS) if order == "key" else (partition,)
        waiting[number] = lane
        lanes.setdefault(lane, []).append(n)
        most["lane"] = max(most["lane"], [*waiting.values()].count(lane))
        most["all"] = max(most["all"], len(waiting))
    if order == "none":
        assert most["lane"] > 1
        return
    assert most["lane"] == 1
    assert all(numbers == sorted(numbers) for numbers in lanes.values())
    if order == "key":
        assert most["all"] > 1


def _asked_about(path: str) -> tuple[int, int]:
    """Number and partition of the record that a question is about."""
    n, _, page = path.rpartition("/")[2].partition("?page=")
    return int(n), int(page.partition("%2F")[0])


def test_questions_keep_to_their_rate(enriching: Enriching) -> None:
    enriching.set_up(ask="order: none\n  questions_per_second: 50")
    enriching.write(1, 150)
    enriching.deliver()
    enriching.assert_each_record_has_one_answer()
    seconds = [each["seconds"] for each in enriching.events() if each["event"] == "batch"]
    # The first question of a batch may go at once. Without a rate, all take a tenth of this.
    assert sum(seconds) >= (150 - len(seconds)) / 50
