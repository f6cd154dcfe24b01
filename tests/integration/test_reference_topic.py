"""The topic of a reference, whatever becomes of it, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError
from onceflow.pipeline.references.declaration import Reference
from onceflow.pipeline.references.table import decoded
from onceflow.runtime.checkpoint.files import CheckpointFiles
from onceflow.runtime.checkpoint.reference_files import ReferenceFiles
from onceflow.runtime.source.references import (
    REREAD_AFTER_S,
    FollowedReference,
    ReferenceFollower,
    ReferenceSettings,
)
from tests.support.brokers.choice import RunningBroker
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.topics import (
    create_topic,
    delete_before,
    delete_topic,
    ordered_producer,
    recreate_topic,
    set_topic,
)

NAMES = Reference("symbol STRING, name STRING", ("symbol",))
PARTITIONS = 2


class Table:
    """A topic of two partitions, and what a driver learns from it."""

    def __init__(self, broker: RunningBroker, topic: str, checkpoint: Path) -> None:
        self.brokers, self.topic, self.checkpoint = broker.bootstrap_servers, topic, checkpoint
        self.clock = ManualClock()
        self.kept = ReferenceFiles(CheckpointFiles(str(checkpoint), {}))
        self._followers: list[ReferenceFollower] = []
        self.told: Mapping[str, Any] | None = None
        self.restart()

    def restart(self) -> None:
        """As a driver that starts: nothing is known but what is in an offset."""
        followed = FollowedReference(NAMES, "", self.topic, 1000)
        settings = ReferenceSettings({"names": followed}, str(self.checkpoint), {})
        self.follower = ReferenceFollower(settings, Connection(self.brokers), self.clock)
        self._followers.append(self.follower)

    def tell(self, *records: tuple[str | None, object], partition: int = 0) -> None:
        producer = ordered_producer(self.brokers)
        for key, value in records:
            content = None if value is None else json.dumps(value).encode()
            producer.produce(self.topic, content, key=key, partition=partition)
        assert producer.flush(30) == 0

    def name(self, symbol: str, name: str, partition: int = 0) -> None:
        self.tell((symbol, {"symbol": symbol, "name": name}), partition=partition)

    def look(self) -> Mapping[str, Any]:
        self.told = self.follower.next(self.told)
        self.clock.sleep(1)
        found: Mapping[str, Any] = self.told["names"]
        return found

    def rows(self) -> dict[str, str]:
        self.look()
        assert self.told is not None
        content = self.kept.read(self.told["names"]["rows"])
        assert content is not None
        return {row["symbol"]: row["name"] for row in decoded(content).to_pylist()}

    def close(self) -> None:
        for each in self._followers:
            each.close()


@pytest.fixture
def table(broker: RunningBroker, topic: Any, tmp_path: Path) -> Iterator[Table]:
    made = Table(broker, topic("names"), tmp_path / "checkpoint")
    create_topic(made.brokers, made.topic, PARTITIONS)
    yield made
    made.close()


def test_a_version_is_the_next_offset_of_each_partition(table: Table) -> None:
    assert table.rows() == {}
    assert table.look()["of"] == "0:0,1:0"
    table.name("F", "Ford")
    table.name("F", "Ford Motor")
    table.name("G", "Alphabet", partition=1)
    assert table.rows() == {"F": "Ford Motor", "G": "Alphabet"}
    first = table.look()
    assert first["of"] == "0:2,1:1"
    assert table.look() is first
    table.tell(("F", None), ("never", None))
    assert table.rows() == {"G": "Alphabet"}
    assert table.look()["of"] == "0:4,1:1"


def test_the_same_again_by_another_process(table: Table) -> None:
    table.name("F", "Ford")
    first = table.look()
    table.name("G", "Alphabet")
    second = table.look()
    table.restart()
    table.told = {"names": first}
    assert table.look() == second
    table.restart()
    assert table.look() == second
    table.name("G", "Alphabet")  # the same row: no other version
    assert table.look() == second


AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "0",
}
"""Brokers forget deletions themselves as soon as they can."""


def test_a_deletion_that_brokers_have_forgotten_is_not_missed(table: Table) -> None:
    for symbol in ("F", "G", "H"):
        table.name(symbol, symbol)
    assert len(table.rows()) == 3
    table.tell(("G", None))

    def keys() -> list[bytes | None]:
        # The cleaner leaves the newest segment alone, which grows by a record.
        table.name("Z", "Z")
        return [each.key for each in read_topic(table.brokers, table.topic)]

    set_topic(table.brokers, table.topic, AT_ONCE)
    eventually(keys, lambda found: b"G" not in found, timeout_s=90)
    table.restart()
    assert table.rows() == {"F": "F", "H": "H", "Z": "Z"}


def test_after_a_pause_the_whole_topic_is_read_again(table: Table) -> None:
    """A process that did not reach the brokers for long may have missed what they forgot."""
    table.name("F", "Ford")
    table.name("G", "Alphabet")
    assert len(table.rows()) == 2
    delete_before(table.brokers, table.topic, 0, 1)
    table.name("H", "later")
    assert table.rows() == {"F": "Ford", "G": "Alphabet", "H": "later"}  # only the end was read
    table.clock.sleep(REREAD_AFTER_S)
    assert table.rows() == {"G": "Alphabet", "H": "later"}


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("G", {"symbol": "G", "name": 7}, "the record with key b'G': JSON parse error"),
        ("other", {"symbol": "F"}, "the record with key b'F' and the record with key b'other'"),
        (None, {"symbol": "G"}, "a record without a key is the row of no key"),
        (None, None, "a record without a key deletes nothing"),
    ],
)
def test_a_bad_record_keeps_the_version_before_it(
    table: Table, key: str | None, value: object, why: str
) -> None:
    table.name("F", "Ford")
    first = table.look()
    table.tell((key, value))
    table.name("H", "later")
    refused = table.look()
    assert refused["refused"].startswith(why)
    assert {**refused, "refused": ""} == {**first, "refused": ""}
    assert table.look() == refused
    table.restart()
    assert table.look() == refused
    if key is not None:
        table.tell((key, None))
        assert table.rows() == {"F": "Ford", "H": "later"}
        assert "refused" not in table.look()


def test_a_first_version_that_is_bad_is_refused(table: Table) -> None:
    table.tell(("F", {"symbol": 7}))
    with pytest.raises(ConfigError, match=r"names \(.*\).*the record with key b'F'"):
        table.look()


def test_a_topic_that_was_created_again_says_itself_what_is_there(table: Table) -> None:
    table.name("F", "Ford")
    table.name("G", "Alphabet")
    assert len(table.rows()) == 2
    recreate_topic(table.brokers, table.topic, PARTITIONS)
    table.name("H", "other")
    table.restart()
    assert table.rows() == {"H": "other"}


def test_what_was_deleted_before_it_was_read_is_not_there(table: Table) -> None:
    table.name("F", "Ford")
    table.look()
    table.name("F", "never read")
    table.name("G", "Alphabet")
    delete_before(table.brokers, table.topic, 0, 2)
    table.restart()
    assert table.rows() == {"G": "Alphabet"}


def test_a_topic_that_is_gone_keeps_the_last_version(table: Table) -> None:
    table.name("F", "Ford")
    first = table.look()
    delete_topic(table.brokers, table.topic)
    table.restart()
    gone = table.look()
    assert "does not exist" in gone["refused"]
    assert gone["rows"] == first["rows"]
    table.restart()
    table.told = None
    with pytest.raises(ConfigError, match="does not exist"):
        table.look()
