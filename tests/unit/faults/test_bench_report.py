"""The table of the benchmark compares engines with the same job."""

from __future__ import annotations

from bench import peers
from bench.engines import EAGER, FILTER, ONCEFLOW, SPARK, Engine
from bench.figures import Latency, Throughput
from bench.report import Report, sections, to_markdown
from bench.runs import Sizes
from bench.workload import Workload

SIZES = Sizes(1_000, 0.25, 500, 100, 1, 1, 0)


def report(*engines: Engine) -> Report:
    found = Report({}, Workload(1, 1), SIZES)
    for number, engine in enumerate(engines, start=1):
        found.throughput[engine.name] = [Throughput(100.0 * number, 1.0, 1.0)]
        found.latency[engine.name] = [Latency(1.0 * number, 2.0, 3.0, 0.5, 1.0, 10)]
    return found


def test_peers_are_compared_with_the_engine_of_their_job() -> None:
    found = dict(sections(report(*peers.COMPARED)))
    title = "backlog of 1,000 records: onceflow and flink"
    assert [row.label for row in found[title]][:1] == ["records/s"]
    assert found[title][0].ratio == "0.20"
    filtered = "nine of ten of a backlog of 1,000 records: onceflow-filter and flink-filter"
    assert found[filtered][0].ratio == "0.25"
    assert "100 records/s, updates, as soon as possible: onceflow-eager and kafka-streams" in found
    assert not any(SPARK.name in title for title in found)


def test_ours_is_shown_alone_where_nothing_else_was_measured() -> None:
    found = dict(sections(report(ONCEFLOW)))
    assert "backlog of 1,000 records" in found
    assert all(not row.theirs for rows in found.values() for row in rows)
    assert "| records/s | 100 |" in to_markdown(report(ONCEFLOW, FILTER, EAGER))
