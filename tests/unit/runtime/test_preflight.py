"""Refusals and warnings before a start, by what brokers and topics say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from onceflow.clock import Deadline, SystemClock
from onceflow.contracts.connector import TopicInfo
from onceflow.errors import ConfigError
from onceflow.protocol.identity import Layout
from onceflow.protocol.ledger import SinkState
from onceflow.runtime.start.preflight import PreflightReport, preflight
from onceflow.runtime.topics.topic_settings import DEFAULT_MAX_BYTES, MIN_LETTER_BYTES

LEDGER = "onceflow.ledger.views"
SAFE = {"min.insync.replicas": "2"}


@dataclass
class Brokers:
    """Implements what `preflight` asks of a `Broker`."""

    alive: int = 3
    config: Mapping[str, str] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)

    def brokers(self, deadline: Deadline) -> int:
        return self.alive

    def broker_config(self, deadline: Deadline) -> Mapping[str, str]:
        return self.config

    def topic(self, name: str, deadline: Deadline) -> TopicInfo | None:
        return self.topics.get(name)

    def group_members(self, group: str, deadline: Deadline) -> int:
        return 0

    def add(self, name: str, *, partitions: int = 4, replication: int = 3, **config: str) -> None:
        settings = {setting.replace("_", "."): value for setting, value in config.items()}
        self.topics[name] = TopicInfo(
            name, f"id of {name}", partitions, replication, replication, {**SAFE, **settings}
        )


@pytest.fixture
def brokers() -> Brokers:
    made = Brokers()
    for name in ("clicks", "out", "dead", LEDGER):
        made.add(name)
    made.add("dead", max_message_bytes=str(MIN_LETTER_BYTES))
    return made


def look(
    brokers: Brokers,
    recorded: int | None = None,
    partitions: int | None = None,
    timeout_ms: int = 60_000,
    controls: str | None = None,
    table: str | None = None,
) -> PreflightReport:
    sink = None if recorded is None else SinkState("out", recorded, Layout(1, 3), {}, "id of out")
    kafka = SimpleNamespace(topic="out", partitions=partitions)
    pipeline: Any = SimpleNamespace(
        name="views",
        control_topics=[controls] if controls else [],
        reference_topics=[table] if table else [],
        named_inputs=["clicks"],
        letter_topics=["dead"],
        sink=SimpleNamespace(kafka=kafka),
    )
    asked: Any = brokers
    return preflight(asked, pipeline, sink, timeout_ms, SystemClock().within(1))


def warnings(brokers: Brokers, recorded: int | None = None) -> list[str]:
    return [str(warning) for warning in look(brokers, recorded).warnings]


def refusal(brokers: Brokers, **needs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        look(brokers, **needs)
    return str(caught.value)


def test_where_everything_is_as_it_should_be_nothing_is_said(brokers: Brokers) -> None:
    assert warnings(brokers) == []


def test_topics_are_created_so_that_the_loss_of_a_broker_loses_nothing(brokers: Brokers) -> None:
    brokers.topics = {"clicks": brokers.topics["clicks"]}
    output, letters = look(brokers).create
    assert (output.name, output.replication, output.config) == ("out", 3, SAFE)
    assert (letters.name, letters.replication) == ("dead", 3)
    assert letters.config == {**SAFE, "max.message.bytes": str(MIN_LETTER_BYTES)}


@pytest.mark.parametrize(
    ("alive", "config", "replication", "expected"),
    [
        (1, {}, 1, {}),
        (2, {}, 2, {}),
        (5, {"default.replication.factor": "2"}, 2, {}),
        (5, {"default.replication.factor": "4"}, 4, SAFE),
        (3, {"min.insync.replicas": "2"}, 3, {}),
    ],
)
def test_what_somebody_chose_stays(
    brokers: Brokers,
    alive: int,
    config: Mapping[str, str],
    replication: int,
    expected: Mapping[str, str],
) -> None:
    brokers.alive, brokers.config = alive, config
    del brokers.topics["out"]
    (output,) = look(brokers).create
    assert (output.replication, output.config) == (replication, expected)


def test_a_topic_made_while_brokers_are_away_is_warned_of(brokers: Brokers) -> None:
    """Its replicas would stay as few as brokers are there now."""
    del brokers.topics[LEDGER]
    brokers.alive, brokers.config = 1, {"offsets.topic.replication.factor": "3"}
    (warning,) = warnings(brokers)
    assert LEDGER in warning
    assert "1 of at least 3 brokers" in warning
    brokers.alive, brokers.config = 2, {}
    assert [f"{LEDGER}: created on 2 brokers" in each for each in warnings(brokers)] == [True]


@pytest.mark.parametrize("name", ["out", "dead", LEDGER])
def test_an_existing_topic_that_may_lose_records_is_warned_of(brokers: Brokers, name: str) -> None:
    large = str(MIN_LETTER_BYTES)
    brokers.add(name, min_insync_replicas="1", max_message_bytes=large)
    assert any("min.insync.replicas is 1" in each and name in each for each in warnings(brokers))
    brokers.add(name, replication=1, max_message_bytes=large)
    assert any("one replica" in each and name in each for each in warnings(brokers))


@pytest.mark.parametrize("name", ["out", "dead"])
def test_settings_that_refuse_or_replace_timestamps_are_warned_of(
    brokers: Brokers, name: str
) -> None:
    limit = DEFAULT_MAX_BYTES if name == "out" else MIN_LETTER_BYTES
    brokers.add(
        name,
        max_message_bytes=str(limit),
        message_timestamp_before_max_ms="3600000",
        message_timestamp_after_max_ms="1000",
        message_timestamp_type="LogAppendTime",
    )
    before, after, kind = warnings(brokers)
    assert "message.timestamp.before.max.ms is 3600000" in before
    assert "message.timestamp.after.max.ms is 1000" in after
    assert "LogAppendTime" in kind


def test_a_topic_of_letters_must_take_what_the_input_does(brokers: Brokers) -> None:
    brokers.add("clicks", max_message_bytes="20000000")
    (warning,) = warnings(brokers)
    assert "dead" in warning
    assert "20065536 or more" in warning
    del brokers.topics["dead"]
    (letters,) = look(brokers).create
    assert letters.config["max.message.bytes"] == "20065536"


def test_a_request_fits_into_the_smallest_limit_of_the_topics_that_are_written(
    brokers: Brokers,
) -> None:
    assert look(brokers).max_batch_bytes == DEFAULT_MAX_BYTES
    brokers.add("dead", max_message_bytes="5000")
    assert look(brokers).max_batch_bytes == 5000


def test_partitions_that_were_added_to_the_output_are_left_alone(brokers: Brokers) -> None:
    brokers.add("out", partitions=6)
    assert look(brokers, recorded=4).partitions == 4
    (warning,) = warnings(brokers, recorded=4)
    assert "nothing is written to those from 4 on" in warning
    assert "expected 7" in refusal(brokers, recorded=7)
    assert "expected 4" in refusal(brokers, recorded=4, partitions=6)
    assert "expected 7, as in sink.kafka.partitions" in refusal(brokers, partitions=7)


def test_a_budget_that_the_brokers_do_not_allow_names_our_setting(brokers: Brokers) -> None:
    brokers.config = {"transaction.max.timeout.ms": "900000"}
    look(brokers, timeout_ms=900_000)
    assert "`transaction_timeout`" in refusal(brokers, timeout_ms=900_001)


def test_the_topic_of_parameters_is_created_so_that_no_change_is_lost(brokers: Brokers) -> None:
    (control,) = look(brokers, controls="changes").create
    assert (control.name, control.partitions) == ("changes", 1)
    brokers.add("changes", partitions=1, **as_keywords(control.config))
    assert look(brokers, controls="changes").warnings == ()
    assert look(brokers, controls="changes").create == ()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cleanup.policy": "delete"}, "cleanup.policy of the topic of parameters is delete"),
        ({"cleanup.policy": "compact,delete"}, "expected compact"),
        ({"delete.retention.ms": "86400000"}, "may miss changes"),
    ],
)
def test_a_topic_of_parameters_that_forgets_is_warned_of(
    brokers: Brokers, changed: dict[str, str], told: str
) -> None:
    (control,) = look(brokers, controls="changes").create
    brokers.add("changes", partitions=1, **as_keywords({**control.config, **changed}))
    (warning,) = look(brokers, controls="changes").warnings
    assert told in str(warning)
    assert warning.where == "changes"


def test_a_topic_of_a_reference_must_exist_and_should_be_compacted() -> None:
    with pytest.raises(ConfigError, match=r"names: the topic of a reference does not exist"):
        look(Brokers(), table="names")


def test_a_topic_of_parameters_with_several_partitions_is_refused(brokers: Brokers) -> None:
    brokers.add("changes", partitions=2)
    told = refusal(brokers, controls="changes")
    assert "the topic of parameters has 2 partitions" in told
    assert "expected 1" in told


def as_keywords(config: Mapping[str, str]) -> dict[str, Any]:
    return {setting.replace(".", "_"): value for setting, value in config.items()}
