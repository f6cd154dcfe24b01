"""Which topics a source reads."""

from __future__ import annotations

import pytest

from onceflow.protocol.identity import ledger_topic
from onceflow_connectors.kafka.source.source import KafkaSource

EVERYTHING = KafkaSource(pattern=".*", retired=("old",)).kafka_topics()


@pytest.mark.parametrize("topic", [ledger_topic("views"), "__transaction_state", "old"])
def test_a_pattern_never_matches_what_onceflow_or_kafka_keeps_nor_what_is_retired(
    topic: str,
) -> None:
    assert not EVERYTHING.covers(topic)


def test_a_pattern_matches_whole_names() -> None:
    assert EVERYTHING.covers("clicks")
    assert EVERYTHING.covers("older")
    clicks = KafkaSource(pattern="clicks").kafka_topics()
    assert not clicks.covers("clicks2")
