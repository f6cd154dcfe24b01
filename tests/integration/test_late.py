"""Records that come too late: counted to the record, and kept as they came where that is asked."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

import pytest

from tests.support.drivers.here import run_here
from tests.support.jobs.views import FIRST, View, ViewsJob
from tests.support.outside.history import Written, read_ledger, read_topic
from tests.support.outside.topics import ordered_producer

PREFIX = "onceflow.dead_letter."
LATENESS = timedelta(seconds=5)
IN_PYTHON = """\
aggregates:
  number: onceflow.aggregates:Count('string')
  total: onceflow.aggregates:Sum('bigint')
"""


@pytest.fixture
def job(job: ViewsJob) -> ViewsJob:
    job.produce(Random(1), records=400, seconds=120)
    job.close_windows()
    return job


def event_watermark(job: ViewsJob) -> datetime:
    return max(view.at for view in job.produced) - LATENESS


def views_around(job: ViewsJob, count: int) -> list[View]:
    """Few pages and windows: many views would be one row after a partial aggregation."""
    dice = Random(2)
    first = event_watermark(job) - timedelta(minutes=4)
    return [
        View(f"/{dice.randrange(2)}", dice.randrange(1000), first + timedelta(seconds=n))
        for n in (dice.randrange(300) for _ in range(count))
    ]


def send(job: ViewsJob, views: Sequence[View]) -> None:
    """Late views, besides what the job expects in its output."""
    producer = ordered_producer(job.bootstrap_servers)
    for number, view in enumerate(views):
        producer.produce(
            job.input_topic,
            view.to_json(),
            b"key %d" % number,
            number % job.partitions,
            headers=[("number", b"%d" % number)],
        )
    assert producer.flush(30) == 0


def last_end(at: datetime, size: int, slide: int) -> datetime:
    """End of the last window that a moment belongs to."""
    start = FIRST + (at - FIRST) // timedelta(seconds=slide) * timedelta(seconds=slide)
    return start + timedelta(seconds=size)


def fact(letter: Written, name: str) -> str:
    (value,) = [value for key, value in letter.headers if key == PREFIX + name]
    assert value is not None
    return value.decode()


def totals(job: ViewsJob) -> dict[str, int]:
    found: dict[str, int] = read_ledger(job.bootstrap_servers, job.name)[-1]["totals"]
    return found


@pytest.mark.drawn(1)
@pytest.mark.parametrize("aggregates", ["", IN_PYTHON], ids=["of Spark", "in Python"])
def test_late_records_are_kept_as_they_came_and_counted_to_the_record(
    job: ViewsJob, aggregates: str
) -> None:
    file = job.write_file(10_000, f"late: {{topic: {job.name}-late}}\n{aggregates}")
    if aggregates:
        text = file.read_text().replace("count(*)", "number(page)").replace("sum(ms)", "total(ms)")
        file.write_text(text)
    run_here(file, job.bootstrap_servers)
    job.check()
    behind = event_watermark(job)
    views = views_around(job, 120)
    late = {n: view for n, view in enumerate(views) if last_end(view.at, 60, 60) <= behind}
    assert 20 < len(late) < 110
    send(job, views)
    run_here(file, job.bootstrap_servers)

    letters = read_topic(job.bootstrap_servers, f"{job.name}-late")
    assert sorted(int(dict(x.headers)["number"] or b"") for x in letters) == sorted(late)
    for letter in letters:
        view = late[int(dict(letter.headers)["number"] or b"")]
        assert letter.value == view.to_json()
        assert fact(letter, "reason") == "late"
        event_time_ms = math.floor(view.at.timestamp() * 1000)
        assert int(fact(letter, "event_time_ms")) == event_time_ms
        event_watermark_ms = int(fact(letter, "event_watermark_ms"))
        assert event_watermark_ms == int(behind.timestamp() * 1000)
        assert int(fact(letter, "lateness_ms")) == event_watermark_ms - event_time_ms
    account = totals(job)
    assert account["late"] == len(late)
    assert account["read"] == len(job.produced) + len(views)


def test_a_record_is_late_if_no_window_takes_it_and_no_filter_has_taken_it_out(
    job: ViewsJob,
) -> None:
    """read = aggregated + late + filtered, counted without the product."""
    file = job.write_file(10_000)
    text = file.read_text().replace(
        "FROM clicks GROUP BY page, window(at, '1 minute')",
        "FROM (SELECT page, at, ms + 0 AS ms FROM clicks) WHERE ms < 500"
        " GROUP BY page, window(at, '1 minute', '20 seconds')",
    )
    file.write_text(text)
    run_here(file, job.bootstrap_servers)
    assert totals(job)["late"] == 0
    behind = event_watermark(job)
    views = views_around(job, 200)
    send(job, views)
    run_here(file, job.bootstrap_servers)
    late = [v for v in views if v.ms < 500 and last_end(v.at, 60, 20) <= behind]
    assert len(late) > 20
    assert totals(job)["late"] == len(late)


def test_late_records_of_a_join_are_counted_on_both_sides(job: ViewsJob) -> None:
    file = job.write_file(10_000)
    text = file.read_text()
    source = text[text.index("  clicks:") : text.index("query:")]
    text = text.replace("query:", source.replace("clicks:", "others:") + "query:")
    query = text[text.index("  SELECT") : text.index("sink:")]
    text = text.replace(
        query,
        "  SELECT a.page, a.ms FROM clicks a JOIN others b ON a.page = b.page AND a.at = b.at\n",
    )
    file.write_text(text)
    run_here(file, job.bootstrap_servers)
    behind = event_watermark(job)
    views = views_around(job, 100)
    send(job, views)
    run_here(file, job.bootstrap_servers)
    late = [view for view in views if view.at <= behind]
    assert 0 < len(late) < len(views)
    assert totals(job)["late"] == 2 * len(late)
    assert json.dumps(totals(job)["read"]) == str(2 * (len(job.produced) + len(views)))


def test_late_records_of_a_union_are_counted_on_both_sides(job: ViewsJob) -> None:
    """Also if only one of them drops duplicates, which looks at event time below the windows."""
    file = job.write_file(10_000)
    text = file.read_text()
    source = text[text.index("  clicks:") : text.index("query:")]
    unique = source.rstrip() + "\n    deduplicate: {key: [page, ms, at], within: 1 day}\n"
    text = text.replace(source, unique + source.replace("clicks:", "others:"))
    text = text.replace("FROM clicks", "FROM (TABLE clicks UNION ALL TABLE others)")
    file.write_text(text)
    run_here(file, job.bootstrap_servers)
    behind = event_watermark(job)
    views = views_around(job, 60)
    send(job, views)
    run_here(file, job.bootstrap_servers)
    late = [view for view in views if last_end(view.at, 60, 60) <= behind]
    assert 10 < len(late) < len(views)
    assert totals(job)["late"] == 2 * len(late)
    assert totals(job)["duplicates"] == 0
