"""The Kafka source keeps every promise of the contract, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from onceflow.devkit.conformance import Outcome, check_source
from onceflow.devkit.conformance_cases import CASES, Case
from onceflow_connectors.kafka.source.consumers import close_idle_readers
from tests.support.brokers import RunningBroker
from tests.support.kafka_origin import KafkaOrigin


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kafka_source_keeps_a_promise(
    case: Case, broker: RunningBroker, topic: Callable[[str], str]
) -> None:
    @contextmanager
    def open_topic() -> Iterator[KafkaOrigin]:
        origin = KafkaOrigin(broker.bootstrap_servers, topic("origin"))
        origin.create()
        yield origin
        close_idle_readers()

    (result,) = check_source(open_topic, [case])
    assert result.outcome is Outcome.PASSED, str(result)
