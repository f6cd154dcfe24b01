"""Transactional ids that Kafka forgets, or gives another producer id."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Producer

from onceflow.errors import FencedError
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.drivers.driver import Driver
from tests.support.drivers.faulty import Faults
from tests.support.drivers.stage import VALUES, Stage, open_stage
from tests.support.eventually import eventually
from tests.support.outside.history import Written, read_topic

TRANSACTION_LOG = "__transaction_state"
LAST_EPOCH = 32_766
"""The next initialisation gets another producer id (`TransactionMetadata.isEpochExhausted`)."""
KEY_OF_ID = struct.Struct(">hh")
"""Version and length, before the transactional id."""
VALUE_OF_ID = struct.Struct(">hqh")
"""Version, producer id and epoch, before the rest (`TransactionLogValue.json`)."""
FORGETFUL = {
    "transactional.id.expiration.ms": "3000",  # 7 days by default
    "transaction.remove.expired.transaction.cleanup.interval.ms": "250",
    "producer.id.expiration.ms": "3000",
    "producer.id.expiration.check.interval.ms": "250",
}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[ChildProcessCluster]:
    with ChildProcessCluster(ClusterOptions(settings=request.param)) as cluster:
        yield cluster


@pytest.mark.parametrize("cluster", [FORGETFUL], indirect=True, ids=["forgetful"])
def test_ids_that_expire_while_nothing_comes_in(
    cluster: ChildProcessCluster, topic: Callable[[str], str]
) -> None:
    """The driver that lives on finds that they are still its own; a zombie finds that not."""
    with open_stage(cluster.bootstrap_servers, topic("p")) as stage:
        driver = stage.driver(lanes=1)
        driver.take_over()
        for batch_id in range(2):
            driver.commit(batch_id, VALUES)
            eventually(lambda: are_forgotten(stage), timeout_s=60)
        driver.commit(2, VALUES)
        eventually(lambda: are_forgotten(stage), timeout_s=60)
        successor = stage.driver(lanes=1)
        successor.take_over()
        successor.commit(3, VALUES)
        with pytest.raises(FencedError):
            driver.commit(3, VALUES)
        stage.check(batches=4)


@pytest.mark.parametrize("cluster", [{}], indirect=True, ids=["usual"])
def test_ids_whose_epochs_are_used_up(
    cluster: ChildProcessCluster, topic: Callable[[str], str]
) -> None:
    """Kafka goes on with another producer id, also while a transaction is open under the old one.

    32,765 initialisations are written into Kafka's own log, instead of being made.
    """
    with open_stage(cluster.bootstrap_servers, topic("p")) as stage:
        with stage.driver(lanes=1) as first:
            first.take_over()
            first.commit(0, VALUES)
        (lane,) = {s.name for s in states(stage)} - {f"onceflow.{stage.name}.owner"}
        age(stage, cluster, producer_epoch=LAST_EPOCH - 1)
        before = states_of(stage, lane)[-1]

        faults = Faults()
        with stage.driver(lanes=1) as successor, stage.driver(lanes=1, wrap=faults.wrap) as zombie:
            zombie.take_over()
            assert states_of(stage, lane)[-1].producer_epoch == LAST_EPOCH
            faults.before_commit = partial(_take_over, successor)
            with pytest.raises(FencedError):
                zombie.commit(1, VALUES)
            assert faults.fired == ["before_commit"]
            assert states_of(stage, lane)[-1].producer_id != before.producer_id
            successor.commit(1, VALUES)

        age(stage, cluster, producer_epoch=LAST_EPOCH - 1)
        last = stage.driver(lanes=1)
        last.take_over()
        before = states_of(stage, lane)[-1]
        assert before.producer_epoch == LAST_EPOCH
        for batch_id in range(2, 5):
            last.commit(batch_id, VALUES)
        assert states_of(stage, lane)[-1].producer_id != before.producer_id
        stage.check(batches=5)


@dataclass(frozen=True)
class State:
    """Kafka's last record of a transactional id. Forgotten: no producer id."""

    name: str
    record: Written
    producer_id: int | None = None
    producer_epoch: int | None = None


def states(stage: Stage) -> Sequence[State]:
    """All there ever were of the stage's ids, in order for each id."""
    log = read_topic(stage.bootstrap_servers, TRANSACTION_LOG, "read_uncommitted")
    return [state for record in log if stage.name in (state := _state(record)).name]


def states_of(stage: Stage, name: str) -> Sequence[State]:
    return [state for state in states(stage) if state.name == name]


def are_forgotten(stage: Stage) -> bool:
    return all(state.producer_id is None for state in newest(stage))


def newest(stage: Stage) -> Sequence[State]:
    """One of each id."""
    return list({state.name: state for state in states(stage)}.values())


def age(stage: Stage, cluster: ChildProcessCluster, producer_epoch: int) -> None:
    """Give every id of the stage that epoch, as so many initialisations would have."""
    # Kafka lets clients of this name write to its own topics.
    producer = Producer(
        {
            "bootstrap.servers": stage.bootstrap_servers,
            "client.id": "__admin_client",
            "log_level": 2,
        }
    )
    for state in newest(stage):
        version, producer_id, _ = VALUE_OF_ID.unpack_from(state.record.value or b"")
        rest = (state.record.value or b"")[VALUE_OF_ID.size :]
        value = VALUE_OF_ID.pack(version, producer_id, producer_epoch) + rest
        place = state.record.partition
        producer.produce(TRANSACTION_LOG, value, state.record.key, place)
    assert producer.flush(30) == 0
    (broker,) = cluster.brokers
    broker.stop()
    broker.restart()
    cluster.wait_until_ready()
    assert {state.producer_epoch for state in newest(stage)} == {producer_epoch}


def _take_over(driver: Driver) -> None:
    driver.take_over()


def _state(record: Written) -> State:
    key, value = record.key or b"", record.value
    _, length = KEY_OF_ID.unpack_from(key)
    name = key[KEY_OF_ID.size :][:length].decode()
    if value is None:
        return State(name, record)
    _, producer_id, producer_epoch = VALUE_OF_ID.unpack_from(value)
    return State(name, record, producer_id, producer_epoch)
