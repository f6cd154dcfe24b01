"""Pipeline files made to hurt the service: each is reported as that file's own fault."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

from onceflow.contracts.source_block import KafkaTopics
from onceflow.contracts.topic_pattern import topic_pattern
from onceflow.errors import ConfigError
from onceflow.pipeline.file import loader
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.pipeline.text import yaml_text
from onceflow.protocol.identity import check_pipeline_name
from onceflow.serve.files import find_files
from onceflow.serving import find_entries, load_alone
from tests.support.pipelines import CLICKS, pipeline_text, write_pipeline

QUICK_S = 10.0
"""Of processor time, for each file. What hung took 30 s, or never ended."""
VALID = pipeline_text()
SCHEMA = '{"type": "record", "name": "a", "fields": []}'


def with_topics(entry: str) -> str:
    return VALID.replace("topics: [clicks]", entry)


def with_schema(place: str) -> str:
    source = CLICKS + f"    format: avro\n    avro: {{schema_file: {place}}}\n"
    return pipeline_text(sources=source)


HOSTILE_TEXTS: Mapping[str, str] = {
    "a trigger of 5,000 digits": VALID + f"trigger: {'9' * 5000}\n",
    "a trigger of 5,000 digits and a unit": VALID + f"trigger: {'9' * 5000} ms\n",
    "a trigger of a million years": VALID + "trigger: 365000000 days\n",
    "a float of 5,000 digits": VALID + f"trigger: 1.{'9' * 5000}\n",
    "a size that is a number of 5,000 digits": VALID.replace(
        "topics: [clicks]", f"topics: [clicks], max_records_per_batch: {'9' * 5000}"
    ),
    "an instant before there was one": with_topics(
        "topics: [clicks], starting: {timestamp: 0001-01-01T00:00:00+14:00}"
    ),
    "ten thousand levels": VALID + f"waivers: {'[' * 10_000}{']' * 10_000}\n",
    "a hundred thousand levels of blocks": VALID + "waivers:\n" + "- " * 50_000 + "a\n",
    "ten thousand unknown keys": VALID + "".join(f"k{i}: 1\n" for i in range(10_000)),
    "more than is read": VALID + "#" * (256 * 1024),
    "a pattern that backtracks does not match": with_topics('pattern: "(a+)+b(?=c)"'),
    "a pattern that unfolds": with_topics('pattern: "((a{100}){100}){100}"'),
    "a pattern of many characters": with_topics(f'pattern: "{"a" * 2_000}"'),
    "a pattern that leaves its parentheses": with_topics('pattern: "a)|(?:b"'),
    "a device for a schema": with_schema("/dev/zero"),
    "a schema elsewhere": with_schema("/etc/passwd"),
    "a schema above": with_schema("../schema.avsc"),
    "a schema that is a pipe": with_schema("pipe"),
    "a linked schema": with_schema("link"),
    "a schema of ten thousand levels": with_schema("deep"),
    "a schema that is a folder": with_schema("."),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of pipelines: a good one, and things that schemas and files may name."""
    made = tmp_path / "pipelines"
    made.mkdir()
    (tmp_path / "schema.avsc").write_text(SCHEMA)
    (tmp_path / "elsewhere.yaml").write_text(VALID.replace("views", "elsewhere"))
    (made / "good.yaml").write_text(VALID.replace("name: views", "name: good"))
    (made / "link").symlink_to(tmp_path / "schema.avsc")
    (made / "deep").write_text("[" * 100_000)
    os.mkfifo(made / "pipe")
    return made


def processor_s() -> float:
    """Seconds of processor time that this process has used."""
    return sum(os.times()[:2])


def assert_refused_alone(folder: Path) -> ConfigError:
    """The bad file is refused, quickly, and the good one next to it is not."""
    begun_s = processor_s()
    entries = {entry.path.stem: entry for entry in find_entries(find_files([folder]))}
    assert sorted(entries) == ["bad", "good"]
    with pytest.raises(ConfigError) as refused:
        load_alone(entries["bad"], [*entries.values()])
    assert load_alone(entries["good"], [*entries.values()]).pipeline.name == "good"
    assert processor_s() - begun_s < QUICK_S
    return refused.value


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_a_hostile_text_is_the_fault_of_its_file(folder: Path, text: str) -> None:
    (folder / "bad.yaml").write_text(text)
    error = assert_refused_alone(folder)
    assert len(error.faults) <= 101
    assert error.found != "ValueError"
    assert "bug of Onceflow" not in str(error)


HOSTILE_FILES: Mapping[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link that leads out": lambda path: path.symlink_to(path.parent.parent / "elsewhere.yaml"),
}


@pytest.mark.parametrize("make", HOSTILE_FILES.values(), ids=HOSTILE_FILES)
def test_a_hostile_file_is_told_and_not_read(folder: Path, make: Callable[[Path], object]) -> None:
    make(folder / "bad.yaml")
    assert "cannot read the pipeline file" in str(assert_refused_alone(folder))


def test_a_link_inside_of_the_folder_is_followed(folder: Path) -> None:
    """As Kubernetes mounts a ConfigMap."""
    (folder / "..data").mkdir()
    (folder / "good.yaml").rename(folder / "..data" / "good.yaml")
    (folder / "good.yaml").symlink_to("..data/good.yaml")
    assert load_pipeline(folder / "good.yaml").pipeline.name == "good"


@pytest.mark.parametrize("error", [RuntimeError("?"), MemoryError(), RecursionError(), KeyError(1)])
def test_whatever_goes_wrong_with_a_file_is_its_own_fault(folder: Path, error: Exception) -> None:
    bad = folder / "bad.yaml"
    bad.write_text("bad")
    parse = yaml_text.parse_yaml

    def fail(text: str) -> object:
        if text == "bad":
            raise error
        return parse(text)

    with patch.object(loader, "parse_yaml", fail):
        told = assert_refused_alone(folder)
    assert str(bad) in str(told)
    assert type(error).__name__ in str(told)


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a b", "", ".", "..", "a\\nb", "a;b", "x" * 250, "$(id)"]
)
def test_names_of_topics_are_names(tmp_path: Path, name: str) -> None:
    quoted = f'"{name}"'
    sink = f"kafka: {{topic: {quoted}, partitions: 1}}"
    sources = CLICKS.replace("topics: [clicks]", f"topics: [{quoted}]")
    for text in (pipeline_text(sink=sink), pipeline_text(sources=sources)):
        with pytest.raises(ConfigError, match="topic"):
            write_pipeline(tmp_path, text)


INTERNAL = ("onceflow.ledger.good", "onceflow.x", "__consumer_offsets", "__transaction_state")


@pytest.mark.parametrize("topic", INTERNAL)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("topics: [clicks]", "topics: [clicks, {topic}]"),
        ("topic: views", "topic: {topic}"),
        ("name: views", "name: views\ndead_letter: {{topic: {topic}}}"),
        ("name: views", "name: views\nlate: {{topic: {topic}}}"),
    ],
)
def test_no_internal_topic_can_be_named(tmp_path: Path, topic: str, old: str, new: str) -> None:
    assert old in VALID
    (tmp_path / "a.yaml").write_text(VALID.replace(old, new.format(topic=topic), 1))
    with pytest.raises(ConfigError) as refused:
        load_pipeline(tmp_path / "a.yaml")
    (fault,) = refused.value.faults
    assert fault.what == "topics that begin with `onceflow.` or `__` are internal"
    assert fault.line is not None


@pytest.mark.parametrize("topic", INTERNAL)
def test_no_pattern_means_an_internal_topic(topic: str) -> None:
    for pattern in (".*", "(?s).*", "onceflow.*|__.*", topic.replace(".", r"\.")):
        assert not KafkaTopics(pattern=pattern).covers(topic)
        assert KafkaTopics(pattern=pattern + "|clicks").covers("clicks")


@pytest.mark.parametrize(
    ("pattern", "topic", "is_meant"),
    [
        ("clicks-.*", "clicks-eu", True),
        ("clicks-.*", "old-clicks-eu", False),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        (r"v\d+", "v12", True),
        ("(?i)Clicks", "clicks", True),
        ("clicks", "clicks\n", False),
    ],
)
def test_a_pattern_means_whole_names(pattern: str, topic: str, is_meant: bool) -> None:
    assert topic_pattern(pattern)(topic) is is_meant


def test_a_pattern_that_would_backtrack_is_matched_at_once() -> None:
    begun_s = processor_s()
    matches = topic_pattern("(a+)+b")
    assert not any(matches("a" * length) for length in range(1, 249))
    assert matches("a" * 248 + "b")
    assert processor_s() - begun_s < QUICK_S


def test_the_name_of_readers_group_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reserved"):
        check_pipeline_name("reader")
    (tmp_path / "a.yaml").write_text(VALID.replace("name: views", "name: reader"))
    with pytest.raises(ConfigError, match="reserved"):
        load_pipeline(tmp_path / "a.yaml")
    assert check_pipeline_name("readers") == "readers"
