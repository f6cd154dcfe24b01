"""From a pipeline file to its model, or to everything wrong with it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.rules import Rule
from onceflow.protocol.delivery import Delivery
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.pipelines import CLICKS, pipeline_text

VALID = pipeline_text()
TEN = "10 seconds"
DUPLICATES = "deduplicate: {key: id, within: 1 h}"


def load(folder: Path, text: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    return load_pipeline(path).pipeline


def faults(folder: Path, text: str) -> tuple[Fault, ...]:
    with pytest.raises(ConfigError) as refused:
        load(folder, text)
    assert refused.value.subject.endswith("pipeline.yaml")
    assert {fault.rule for fault in refused.value.faults} <= {*Rule}
    return refused.value.faults


def changed(old: str, new: str, text: str = VALID) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_a_file_says_what_it_says(tmp_path: Path) -> None:
    pipeline = load(tmp_path, VALID)

    assert (pipeline.name, pipeline.delivery) == ("views", "exactly_once")
    assert pipeline.named_inputs == ["clicks"]
    assert pipeline.sources["clicks"].lateness_ms == 10_000
    assert pipeline.sink.output_mode == "append"
    assert pipeline.trigger_ms == 280


def test_a_file_that_does_not_speak_of_delivery_is_delivered_exactly_once(tmp_path: Path) -> None:
    assert "delivery" not in VALID
    assert load(tmp_path, VALID).mode is Delivery.EXACTLY_ONCE


@pytest.mark.parametrize("delivery", Delivery)
def test_a_file_says_how_records_are_delivered(tmp_path: Path, delivery: Delivery) -> None:
    text = changed("name: views", f"name: views\ndelivery: {delivery.value}")
    pipeline = load(tmp_path, text)
    assert pipeline.mode is delivery
    assert pipeline.result_parts()["delivery"] == delivery.value


def test_every_fault_of_a_file_comes_at_once_with_its_line(tmp_path: Path) -> None:
    text = (
        "apiVersion: onceflow/v2\n"
        "nam: views\n"
        "trigger: 1:30\n"
        "query: SELECT 1\n"
        "transform: a:b\n"
        "sources:\n"
        "  Clicks:\n"
        "    kafka: {topics: [clicks], pattern: x}\n"
        "    schema: a INT\n"
        "    lateness: soon\n"
        "sink:\n"
        "  kafka: {topic: out, partitions: 0, key: a, key: b}\n"
        "  emit: update\n"
    )

    found = faults(tmp_path, text)

    assert [(fault.line, fault.where) for fault in found] == [
        (1, "apiVersion"),
        (1, "name"),
        (2, "nam"),
        (3, "trigger"),
        (5, "transform"),
        (7, "sources.Clicks"),
        (8, "sources.Clicks.kafka"),
        (10, "sources.Clicks.lateness"),
        (10, "sources.Clicks.lateness"),
        (12, "sink.kafka.key"),
        (12, "sink.kafka.partitions"),
        (13, "sink.emit"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "suggestion"),
    [
        ("lateness:", "latness:", "Did you mean `lateness`?"),
        ("sink:", "sinks:", "Did you mean `sink`?"),
        ("topic: views", "topik: views", "Did you mean `topic`?"),
        ("name: views", "name: views\nemit: final", "It belongs to `sink`."),
        ("name: views", "name: views\nstarting: latest", "It belongs to `sources.*.kafka`."),
        ("partitions: 1", "partitioner: murmur", "Did you mean `murmur2`?"),
        ("    event_time", "    format: jsn\n    event_time", "Did you mean `json`?"),
        ("name: views", "name: views\ndelivery: exactly-once", "Did you mean `exactly_once`?"),
    ],
)
def test_an_unknown_key_or_value_is_answered_with_what_was_meant(
    tmp_path: Path, old: str, new: str, suggestion: str
) -> None:
    found = faults(tmp_path, changed(old, new))

    assert suggestion in [fault.suggestion for fault in found]


def test_an_unknown_key_like_no_other_is_answered_with_those_there_are(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, changed("kafka: {topic", "kafka: {colour: red, topic"))

    assert fault.expected == "one of topic, partitions, key, partitioner, partition"


def test_what_is_designed_and_not_built_is_refused_by_name(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, changed("lateness: 10", "format: protobuf\n    lateness: 10"))

    assert fault.where == "sources.clicks.format"
    assert "not yet supported" in fault.what


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("kafka: {topics: [clicks]}", "kafka: {}", "what to read is needed exactly once"),
        ("[clicks]", "[clicks, clicks]", "a topic is named twice"),
        ("[clicks]", "[]", "a wrong kind of value"),
        ("topics: [clicks]", "topics: clicks", "a wrong kind of value"),
        ("topics: [clicks]", "pattern: '(('", "not a regular expression"),
        ("[clicks]", "['a b']", "not a topic name"),
        ("[clicks]", "[views]", "a pipeline cannot read the topic that it writes"),
        ("topics: [clicks]", "pattern: 'v.*'", "a pipeline cannot read the topic that it writes"),
        ("    event_time: at\n", "", "`lateness` without `event_time`"),
        ("    lateness: 10 seconds\n", "", "`event_time` without `lateness`"),
        ("10 seconds", "10 seconds\n    idle_after: 999 ms", "too short"),
        ("event_time: at", "idle_after: 3 s", "`idle_after` without `event_time`"),
        ("event_time: at", DUPLICATES, "`deduplicate` without `event_time`"),
        (TEN, f"{TEN}\n    {DUPLICATES.replace('id', '[]')}", "a wrong kind of value"),
        (TEN, f"{TEN}\n    {DUPLICATES.replace('id', '3')}", "a wrong kind of value"),
        (TEN, f"{TEN}\n    {DUPLICATES.replace('1 h', '1')}", "not a duration"),
        (TEN, f"{TEN}\n    deduplicate: {{key: id}}", "`within` is missing"),
        ("10 seconds", "10", "not a duration"),
        ("10 seconds", "ten seconds", "not a duration"),
        ("10 seconds", "10 fortnights", "not a duration"),
        ("    event_time", "    format: avro\n    event_time", "format avro needs a schema"),
        ("    event_time", "    avro: {schema_file: x}\n    event_time", "`avro` without `format"),
        ("name: views", "name: Views", "unusable pipeline name"),
        ("name: views", "name: 5", "a wrong kind of value"),
        ("name: views", "name: views\ncheckpoint: s3://b/x", "unknown storage s3://"),
        ("name: views", "name: views\ncheckpoint: ''", "no location"),
        ("partitions: 1", "partitions: '1'", "a wrong kind of value"),
        ("partitions: 1", "partitions: true", "a wrong kind of value"),
        ("partitions: 1", "partition: p, partitioner: crc32", "`partition` and `partitioner`"),
        ("[clicks]", "[clicks], starting: now", "not a starting point"),
        ("[clicks]", "[clicks], starting: {timestamp: 2026-11-01}", "an instant without a time"),
        ("[clicks]", "[clicks], starting: {timestamp: soon}", "not an instant"),
        ("[clicks]", "[clicks], max_records_per_batch: 0", "a wrong kind of value"),
        ("sources:", "sources: [clicks]\nsource:", "a wrong kind of value"),
    ],
)
def test_a_value_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, what: str) -> None:
    found = faults(tmp_path, changed(old, new))

    assert [fault for fault in found if fault.what.startswith(what)]
    assert all(fault.line for fault in found)
    assert all(fault.expected or fault.suggestion or "not yet" in fault.what for fault in found)


def test_a_schema_is_needed_where_the_payload_has_many_columns(tmp_path: Path) -> None:
    without = "\n".join(line for line in VALID.splitlines() if "schema:" not in line) + "\n"
    text_format = changed("    event_time", "    format: text\n    event_time", without)

    (fault,) = faults(tmp_path, without)

    assert fault.what == "`schema` is missing"
    assert load(tmp_path, text_format).sources["clicks"].columns_ddl == "value STRING"


def test_a_transformation_is_needed(tmp_path: Path) -> None:
    lines = VALID.splitlines()
    without = [line for line in lines if line != "query: |" and "SELECT" not in line]

    (fault,) = faults(tmp_path, "\n".join(without) + "\n")

    assert fault.expected == "`query` or `transform`"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\xff\xfe\x00", "a byte that is none at position 0"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes | None, found: str) -> None:
    path = tmp_path / "pipeline.yaml"
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(ConfigError) as refused:
        load_pipeline(path)

    assert (refused.value.what, refused.value.found) == ("cannot read the pipeline file", found)


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n"])
def test_a_file_without_a_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (fault,) = faults(tmp_path, text)

    assert "a mapping" in fault.expected


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    assert load(tmp_path, "\ufeff" + VALID).name == "views"


@pytest.mark.parametrize(
    ("written", "location"),
    [
        ("\ncheckpoint: there/ck", "{folder}/there/ck"),
        ("", "{folder}/.onceflow/views"),
        ("\ncheckpoint: s3a://b/x", "s3a://b/x"),
    ],
)
def test_relative_places_are_relative_to_the_file(
    tmp_path: Path, written: str, location: str
) -> None:
    pipeline = load(tmp_path, changed("name: views", f"name: views{written}"))

    assert pipeline.checkpoint_location == location.format(folder=tmp_path.resolve())


def test_the_first_start_may_be_at_an_instant_of_any_zone(tmp_path: Path) -> None:
    text = changed("[clicks]", "[clicks], starting: {timestamp: 2026-11-01T01:00:00+01:00}")

    block = load(tmp_path, text).sources["clicks"].block

    assert isinstance(block, KafkaSource)
    assert block.starting_ms == 1_793_491_200_000


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot read the file"),
        ("{", "the Avro schema is not JSON"),
        ('"string"', "the Avro schema is not that of a record"),
    ],
)
def test_an_avro_schema_is_read_with_the_file(
    tmp_path: Path, content: str | None, what: str
) -> None:
    if content is not None:
        (tmp_path / "click.avsc").write_text(content)
    source = CLICKS + "    format: avro\n    avro: {schema_file: click.avsc}\n"

    (fault,) = faults(tmp_path, pipeline_text(sources=source))

    assert fault.what.startswith(what)
    assert fault.where == "sources.clicks.avro.schema_file"


def test_an_avro_schema_reaches_the_decoder_as_canonical_json(tmp_path: Path) -> None:
    (tmp_path / "click.avsc").write_text('{"type": "record", "name": "c", "fields": []}')
    source = CLICKS + "    format: avro\n    avro: {schema_file: click.avsc}\n"

    pipeline = load(tmp_path, pipeline_text(sources=source))

    assert pipeline.sources["clicks"].format_options(pipeline.folder) == {
        "schema": '{"fields":[],"name":"c","type":"record"}'
    }


@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ("name: views", "name: views\ntrigger: 5 s", False),
        ("name: views", "name: views\ncheckpoint: elsewhere", False),
        ("[clicks]", "[clicks], starting: latest", False),
        ("[clicks]", "[clicks], max_records_per_batch: 5", False),
        ("10 seconds", "10 seconds\n    idle_after: 3 s", False),
        ("10 seconds", "11 seconds", True),
        (TEN, f"{TEN}\n    {DUPLICATES}", True),
        ("count(*)", "count(1)", True),
        ("BIGINT", "INT", True),
        ("partitions: 1", "partitions: 1, partitioner: murmur2", True),
        ("key: id, within: 1 h", "key: id, within: 2 h", True),
        ("key: id,", "key: [id, page],", True),
        ("key: id,", "key: [id],", False),
    ],
)
def test_what_changes_results_changes_the_result_parts(
    tmp_path: Path, old: str, new: str, is_other: bool
) -> None:
    text = VALID if old in VALID else changed(TEN, f"{TEN}\n    {DUPLICATES}")
    before = load(tmp_path, text).result_parts()

    after = load(tmp_path, changed(old, new, text)).result_parts()

    assert (after != before) is is_other


@pytest.mark.parametrize(
    ("form", "columns", "payload"),
    [
        ("json", ["k", "p", "v"], ["k", "p", "v"]),
        ("text", ["k", "p", "v"], ["v"]),
        ("text", ["k"], ["k"]),
    ],
)
def test_a_single_value_is_what_key_and_partition_leave(
    tmp_path: Path, form: str, columns: list[str], payload: list[str]
) -> None:
    sink = f"kafka: {{topic: t, key: k, partition: p}}\nformat: {form}"

    pipeline = load(tmp_path, pipeline_text(sink=sink))

    assert list(pipeline.sink.payload_columns(columns)) == payload


def test_a_key_without_a_value_is_one_fault_and_not_two(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, changed("name: views", "name:"))

    assert (fault.where, fault.what) == ("name", "no value")
