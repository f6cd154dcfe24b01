"""A pipeline explained: stations, names in Kafka, and what each kind of reader gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.contracts.values import duration_text, parse_duration_ms
from onceflow.pipeline.analysis.explain import Explanation, explain, readers_of
from onceflow.protocol.guarantee import Determinism, State
from tests.support.pipelines import CLICKS, pipeline_text, write_pipeline


def explained(folder: Path, **parts: str) -> Explanation:
    return explained_text(folder, pipeline_text(**parts))


def explained_text(folder: Path, text: str) -> Explanation:
    pipeline = write_pipeline(folder, text).pipeline
    readers = readers_of(pipeline.mode, Determinism.HOLDS, State.DURABLE)
    return explain(pipeline, readers, ("a fact",))


def test_names_in_kafka_are_those_of_the_protocol(tmp_path: Path) -> None:
    names = explained(tmp_path).names

    assert names.ledger == "onceflow.ledger.views"
    assert names.group == "onceflow.views"
    assert names.transactional_ids == ("onceflow.views.owner", "onceflow.views.s0.l0")


@pytest.mark.parametrize(
    ("delivery", "levels"),
    [
        ("exactly_once", ["exactly_once", "at_least_once", "exactly_once"]),
        ("at_least_once", ["at_least_once", "at_least_once", "exactly_once"]),
        ("at_most_once", ["at_most_once", "at_most_once", "at_most_once"]),
    ],
)
def test_each_kind_of_reader_gets_what_the_table_says(
    tmp_path: Path, delivery: str, levels: list[str]
) -> None:
    text = pipeline_text().replace("name: views", f"name: views\ndelivery: {delivery}")
    found = explained_text(tmp_path, text)

    readings = ["read_committed", "read_uncommitted", "deduplicating"]
    assert {r.reading: r.guarantee.level.value for r in found.readers} == dict(
        zip(readings, levels, strict=True)
    )
    assert found.delivery == delivery
    records_first = "records first" in found.writing.because
    assert records_first == (delivery == "at_least_once")


def test_stations_say_what_is_known_about_them(tmp_path: Path) -> None:
    found = explained(
        tmp_path, sources=CLICKS.replace("topics: [clicks]", "pattern: 'c.*', starting: latest")
    )

    (source,) = found.sources
    assert source.facts == (
        "topics like c.*",
        "json",
        "starting: latest",
        "event time at, 10 s lateness",
    )
    assert found.query.facts == ("Spark SQL", "a fact")


def test_the_choice_of_the_partition_is_told(tmp_path: Path) -> None:
    def told(sink: str) -> str:
        return explained(tmp_path, sink=sink).sink.facts[1]

    assert told("kafka: {topic: t}") == "partitions as they are, by the value, for want of a key"
    assert told("kafka: {topic: t, key: k}") == "partitions as they are, partition by crc32 of k"
    assert told("kafka: {topic: t, partitions: 2, partition: p}") == (
        "2 partitions, partition from column p"
    )


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0 ms"), (1_500, "1500 ms"), (10_000, "10 s"), (120_000, "2 min"), (172_800_000, "2 d")],
)
def test_a_duration_is_told_in_the_largest_whole_unit(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
    assert parse_duration_ms(text) == duration_ms
