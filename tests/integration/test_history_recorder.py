"""The recorder against a real broker: plain producers do right and wrong, and it sees each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.faults.history.check import assert_clean, check_all
from tests.faults.history.made import header_bytes
from tests.faults.history.model import Isolation, Outcome
from tests.faults.history.recorded import History
from tests.faults.history.recorder import Recorder
from tests.faults.history.writes import Expected, Pair
from tests.support.brokers.children import ChildProcessCluster
from tests.support.brokers.choice import RunningBroker
from tests.support.eventually import eventually
from tests.support.outside.topics import create_topic

PARTITIONS = 2
TIMEOUT_S = 20.0
RUN = "run-1"


@dataclass
class Writer:
    """Writes batches as the published format says, one transaction for each, in any way asked."""

    bootstrap_servers: str
    pipeline: str
    sequence: Counter[int] = field(default_factory=Counter)
    expected: Counter[Pair] = field(default_factory=Counter)

    @property
    def ledger(self) -> str:
        return f"onceflow.ledger.{self.pipeline}"

    def create_topics(self) -> None:
        create_topic(self.bootstrap_servers, self.pipeline, PARTITIONS)
        create_topic(self.bootstrap_servers, self.ledger, 2, {"cleanup.policy": "compact"})

    def claim(self) -> None:
        with self._transaction() as producer:
            owner = {"v": 1, "token": 1, "run_id": RUN}
            producer.produce(self.ledger, json.dumps(owner), "owner", partition=0)
            producer.commit_transaction(TIMEOUT_S)

    def commit(self, batch_id: int, values: Sequence[str]) -> None:
        with self._transaction() as producer:
            self.sequence = self._send(producer, batch_id, values)
            self.expected.update((b"k", value.encode()) for value in values)
            producer.commit_transaction(TIMEOUT_S)

    def abort(self, batch_id: int, values: Sequence[str]) -> None:
        with self._transaction() as producer:
            self._send(producer, batch_id, values)
            assert producer.flush(TIMEOUT_S) == 0
            producer.abort_transaction(TIMEOUT_S)

    @contextmanager
    def hang(self, batch_id: int, values: Sequence[str]) -> Iterator[None]:
        """An open transaction while the block runs."""
        with self._transaction() as producer:
            self._send(producer, batch_id, values)
            assert producer.flush(TIMEOUT_S) == 0
            yield
            producer.abort_transaction(TIMEOUT_S)

    @contextmanager
    def _transaction(self) -> Iterator[Producer]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "transactional.id": f"onceflow.{self.pipeline}.s0.l0",
                "log_level": 2,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        yield producer

    def _send(self, producer: Producer, batch_id: int, values: Sequence[str]) -> Counter[int]:
        sequence = Counter(self.sequence)
        for i, value in enumerate(values):
            partition = i % PARTITIONS
            sequence[partition] += 1
            header = header_bytes(
                batch_id=batch_id, sequence=sequence[partition], pipeline=self.pipeline
            )
            producer.produce(
                self.pipeline, value, "k", partition=partition, headers={"onceflow": header}
            )
        bounds = {str(p): [self.sequence[p] + 1, sequence[p]] for p in sequence}
        head = {
            "v": 1,
            "generation": 1,
            "batch_id": batch_id,
            "token": 1,
            "run_id": RUN,
            "sources": {"s": {"in": {"0": [batch_id, batch_id + 1]}}},
            "sink": {"sequence": bounds},
            "note": "",
        }
        producer.produce(self.ledger, json.dumps(head), "head", partition=1)
        return sequence


@pytest.fixture
def writer(broker: RunningBroker, topic: Callable[[str], str]) -> Writer:
    return Writer(broker.bootstrap_servers, topic("out"))


def recording(writer: Writer) -> Recorder:
    return Recorder(writer.bootstrap_servers, writer.pipeline, writer.pipeline)


def values_seen(history: History, isolation: Isolation) -> Counter[bytes | None]:
    (reader,) = history.readers_at(isolation)
    return Counter(r.value for _, r in reader.observations() if r.topic == history.output_topic)


def names(history: History, writer: Writer) -> set[str]:
    return {anomaly.name for anomaly in check_all(history, Expected(writer.expected))}


def test_commits_and_aborts_are_seen_and_are_no_anomaly(writer: Writer, tmp_path: Path) -> None:
    with recording(writer) as recorder:
        writer.create_topics()
        create_topic(writer.bootstrap_servers, f"{writer.pipeline}-in")
        producer = recorder.producer(f"{writer.pipeline}-in")
        writer.claim()
        writer.commit(0, ["a", "b", "c"])
        writer.abort(1, ["aborted"])
        sent = [producer.send(), producer.send(b"value", key=b"key", partition=0)]
        writer.commit(1, ["d", "e"])
        recorder.attempt(1, RUN, Outcome.FAILED)
        recorder.attempt(1, RUN, Outcome.OK)
        recorder.quiesce()
    history = recorder.history()

    assert_clean(history, Expected(writer.expected))
    assert values_seen(history, Isolation.COMMITTED) == Counter([b"a", b"b", b"c", b"d", b"e"])
    assert values_seen(history, Isolation.UNCOMMITTED)[b"aborted"] == 1
    assert [(i.input_id, i.outcome, i.offset) for i in history.inputs] == [
        (sent[0], Outcome.OK, 0),
        (sent[1], Outcome.OK, 1),
    ]
    assert len(history.final) == PARTITIONS + 2
    assert history.probes
    history.save(tmp_path)
    assert History.load(tmp_path) == history


def test_an_open_transaction_is_seen(writer: Writer) -> None:
    with recording(writer) as recorder:
        writer.create_topics()
        writer.claim()
        writer.commit(0, ["a", "b"])
        with writer.hang(1, ["open"]):
            recorder.quiesce(settle_s=1)
    history = recorder.history()

    assert names(history, writer) == {"hung_transaction", "lagging_stable_offset"}
    (transaction,) = history.transactions
    assert transaction.state == "Ongoing"
    assert transaction.places == ((writer.ledger, 1), (writer.pipeline, 0))
    assert values_seen(history, Isolation.COMMITTED) == Counter([b"a", b"b"])
    assert values_seen(history, Isolation.UNCOMMITTED)[b"open"] == 1


def test_an_hour_of_inputs_need_not_be_kept(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged inputs are left out; one whose outcome is unknown is looked for."""
    seen: list[str] = []
    create_topic(writer.bootstrap_servers, writer.pipeline, PARTITIONS)
    recorder = Recorder(
        writer.bootstrap_servers,
        writer.pipeline,
        keep_inputs=False,
        on_ok=lambda one: seen.append(one.input_id),
    )
    with recorder:
        producer = recorder.producer(writer.pipeline)
        acknowledged = producer.send(partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        assert seen == [acknowledged]
        refused = producer.send(partition=99)
        monkeypatch.setattr(producer, "_settle", lambda *_: None)
        unheard = producer.send(partition=1)
        recorder.quiesce()

    assert seen == [acknowledged, unheard]
    assert [(i.input_id, i.outcome) for i in recorder.history().inputs] == [
        (refused, Outcome.FAILED)
    ]


def test_readers_outlive_their_broker(topic: Callable[[str], str]) -> None:
    with ChildProcessCluster() as cluster:
        writer = Writer(cluster.bootstrap_servers, topic("out"))
        (broker,) = cluster.brokers
        with recording(writer) as recorder:
            writer.create_topics()
            writer.claim()
            writer.commit(0, ["a", "b"])
            committed = recorder.readers[0]
            eventually(lambda: len(list(committed.observations())) == 4)
            broker.kill()
            broker.restart()
            cluster.wait_until_ready()
            writer.commit(1, ["c", "d"])
            recorder.quiesce()

    assert_clean(recorder.history(), Expected(writer.expected))
    assert values_seen(recorder.history(), Isolation.COMMITTED).total() == 4
