"""Every example runs on a real broker and writes exactly what its own oracle computed."""

from __future__ import annotations

import json
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.history.writes import Expected
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import run_here
from tests.support.outside.history import read_topic
from tests.support.outside.judge import anomalies
from tests.support.outside.topics import create_topic, ordered_producer

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(file.parent.name for file in EXAMPLES.glob("*/pipeline.yaml"))
INPUT_PARTITIONS = 2


LONG = ("funnel", "inventory", "running-totals")
"""Only their own tests run each time."""


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in NAMES],
)
def test_an_example_writes_what_its_oracle_says(
    broker: RunningBroker, tmp_path: Path, name: str
) -> None:
    suffix = uuid.uuid4().hex[:8]
    example = tmp_path / name
    shutil.copytree(EXAMPLES / name, example)
    inputs = sorted((example / "data").glob("*.jsonl"))
    (expected,) = sorted((example / "expected").glob("*.jsonl"))
    _rename_topics(example / "pipeline.yaml", [p.stem for p in (*inputs, expected)], suffix)
    for data in inputs:
        _produce(broker.bootstrap_servers, f"{data.stem}-{suffix}", data)
    with _own_modules(example):
        run_here(example / "pipeline.yaml", broker.bootstrap_servers)
    written = read_topic(broker.bootstrap_servers, f"{expected.stem}-{suffix}")
    wanted = [json.loads(line) for line in expected.read_text().splitlines()]
    assert wanted
    assert anomalies(written, expected=Expected.of_rows(wanted)) == []


@contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """Import this copy of its modules inside, and let later tests import their own."""
    names = [file.stem for file in folder.glob("*.py")]
    for name in names:
        sys.modules.pop(name, None)
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.path[:] = [place for place in sys.path if place != str(folder)]


def _rename_topics(file: Path, topics: list[str], suffix: str) -> None:
    """The broker is shared by all tests: names must be of this test alone."""
    text = file.read_text()
    for topic in topics:
        for before, after in (("topics: [", "]"), ("topic: ", ",")):
            text = text.replace(f"{before}{topic}{after}", f"{before}{topic}-{suffix}{after}")
    text, count = re.subn(r"(?m)^name: (\S+)$", rf"name: \1-{suffix}", text)
    assert count == 1
    assert text.count(f"-{suffix}") == 1 + len(topics)
    file.write_text(text)


def _produce(bootstrap_servers: str, topic: str, data: Path) -> None:
    create_topic(bootstrap_servers, topic, INPUT_PARTITIONS)
    producer = ordered_producer(bootstrap_servers)
    for number, line in enumerate(data.read_text().splitlines()):
        producer.produce(topic, line, partition=number % INPUT_PARTITIONS)
    assert producer.flush(30) == 0
