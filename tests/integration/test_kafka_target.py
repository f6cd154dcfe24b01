"""The target `kafka` on real brokers: what it writes, refuses and fences, without a delivery.

Records are made here, as if they were read: the topic that they are read from is on the broker of
the run, the target is a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceflow.clock import SystemClock
from onceflow.columns import NO_COLUMNS
from onceflow.contracts.connector import Connection
from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Claim, Mark, Move, Target
from onceflow.contracts.target_block import TargetSpec
from onceflow.crashpoints import CrashPoint
from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    DeadlineError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow.protocol.identity import DELIVERIES_TOPIC
from onceflow.protocol.record import HEADER_NAME
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.delivery import positions as positions_module
from onceflow_connectors.kafka.delivery import target as target_module
from onceflow_connectors.kafka.delivery.block import KafkaBlock
from tests.chaos.rules import Rule, Side
from tests.chaos.thread import ChaosProxy
from tests.support.brokers.choice import RunningBroker, choose_broker
from tests.support.brokers.cluster import FaultyCluster
from tests.support.eventually import eventually
from tests.support.outside.history import Written, read_topic
from tests.support.outside.topics import create_topic, recreate_topic

PARTITIONS = 2
NOW_MS = SystemClock().unix_ms()
"""Of records: a topic's retention counts from their own timestamps."""
HEADER = b"\1" + bytes(31)


@pytest.fixture(scope="module")
def other() -> Iterator[FaultyCluster]:
    """The target's brokers."""
    with choose_broker().cluster(1) as cluster:
        yield cluster


@dataclass
class Bench:
    """A delivery of its own, the topic that it reads, and the one that it writes."""

    source: str
    address: str
    folder: Path
    topic: str
    name: str

    def create(self, partitions: int = PARTITIONS, **config: str) -> None:
        create_topic(self.source, self.topic, PARTITIONS)
        settings = {name.replace("_", "."): value for name, value in config.items()}
        create_topic(self.address, self.topic, partitions, settings)

    def target(self, **block: Any) -> Target:
        topics = block.pop("topics", (self.topic,))
        given = {"bootstrap_servers": self.address, **block}
        connection = Connection(self.source)
        spec = TargetSpec(self.name, NO_COLUMNS, self.folder, topics, connection)
        return KafkaBlock.model_validate(given).target(spec)

    def read(self, topic: str = "") -> list[Written]:
        return read_topic(self.address, topic or self.topic)

    @property
    def is_decided(self) -> bool:
        """Whether no transaction is open in the target."""
        with closing(KafkaBroker(Connection(self.address))) as broker:
            offsets = broker.offsets(self.topic, SystemClock().within(20))
        return all(stable == end for _, stable, end in offsets.values())

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [each.value for each in self.read() if each.partition == partition]

    def record(self, offset: int, value: bytes | None = None, partition: int = 0) -> Record:
        key, body = b"k%d" % offset, b"%d" % offset if value is None else value
        headers = (("a", b"1"), (HEADER_NAME, HEADER), ("a", None))
        return Record(self.topic, partition, offset, NOW_MS + offset, key, body, headers)


@pytest.fixture
def bench(
    broker: RunningBroker, other: FaultyCluster, topic: Callable[[str], str], tmp_path: Path
) -> Bench:
    name = topic("copy")
    return Bench(
        broker.bootstrap_servers, other.bootstrap_servers, tmp_path, name, f"d-{name[-8:]}"
    )


def batch(records: Sequence[Record], *claims: Claim) -> Batch:
    moves = []
    for claim in claims:
        ends = [r.offset + 1 for r in records if (r.topic, r.partition) == claim.place]
        moves.append(Move(claim, Mark(max(ends), f"after {max(ends)}")))
    return Batch(records, (), moves)


def after(written: Batch) -> Claim:
    [move] = written.moves
    return replace(move.claim, mark=move.to)


def test_records_arrive_as_they_were_and_once(bench: Bench) -> None:
    bench.create()
    records = [bench.record(0), bench.record(1, b""), bench.record(0, partition=1)]
    records.append(bench.record(2)._replace(key=None, value=None, headers=()))
    with closing(bench.target()) as target:
        target.check()
        claims = [target.claim((bench.topic, n)) for n in range(PARTITIONS)]
        assert claims[0] == Claim((bench.topic, 0), 1, None)
        written = batch(records, *claims)
        target.write(written)
        target.write(written)
        assert target.positions() == {
            (bench.topic, 0): Mark(3, "after 3"),
            (bench.topic, 1): Mark(1, "after 1"),
        }
        again = target.claim((bench.topic, 0))
        assert again == Claim((bench.topic, 0), 2, Mark(3, "after 3"))
    found = [(r.partition, r.key, r.value, r.headers, r.timestamp_ms) for r in bench.read()]
    assert found == [
        (r.partition, r.key, r.value, r.headers, r.timestamp_ms)
        for r in sorted(records, key=lambda record: record.partition)
    ]


def test_partitions_by_key_leave_out_sequences_that_would_have_gaps(bench: Bench) -> None:
    bench.create()
    everything = f"{bench.topic}-all"
    create_topic(bench.address, everything, 3)
    records = [bench.record(n) for n in range(20)]
    with closing(bench.target(topic=everything, partition="key")) as target:
        target.write(batch(records, target.claim((bench.topic, 0))))
    found = bench.read(everything)
    assert len({each.partition for each in found}) == 3
    assert sorted(int(each.value or b"") for each in found) == list(range(20))
    assert {each.headers for each in found} == {(("a", b"1"), ("a", None))}


def test_a_position_moves_without_records(bench: Bench) -> None:
    bench.create()
    with closing(bench.target()) as target:
        claim = target.claim((bench.topic, 0))
        target.write(Batch((), (), [Move(claim, Mark(7, "repeats"))]))
        assert target.positions() == {(bench.topic, 0): Mark(7, "repeats")}
    assert bench.read() == []


def test_an_older_claim_writes_nothing(bench: Bench) -> None:
    bench.create()
    with closing(bench.target()) as zombie, closing(bench.target()) as successor:
        old = zombie.claim((bench.topic, 0))
        new = successor.claim((bench.topic, 0))
        with pytest.raises(AbortableError, match="expected claim 1; found claim 2"):
            zombie.write(batch([bench.record(0, b"zombie")], old))
        written = batch([bench.record(0)], new)
        successor.write(written)
        with pytest.raises(AbortableError):
            zombie.write(batch([bench.record(0, b"zombie")], old))
        successor.write(batch([bench.record(1)], after(written)))
    assert bench.values() == [b"0", b"1"]


@pytest.mark.parametrize("step", ["mid_produce", "before_commit"])
def test_a_transaction_is_fenced_by_a_claim_that_comes_in_its_middle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    bench.create()
    with closing(bench.target()) as zombie, closing(bench.target()) as successor:
        old = zombie.claim((bench.topic, 0))
        taken: list[Claim] = []
        arrivals = iter([step])

        def take_over(point: str) -> None:
            if point == step and next(arrivals, None):
                taken.append(successor.claim((bench.topic, 0)))

        monkeypatch.setattr(positions_module, "reach", take_over)
        with pytest.raises((OutcomeUnknownError, RetriableError)):
            zombie.write(batch([bench.record(0, b"zombie")], old))
        with pytest.raises(AbortableError):
            zombie.write(batch([bench.record(0, b"zombie")], old))
        assert taken[0].mark is None
        successor.write(batch([bench.record(0)], taken[0]))
    assert bench.values() == [b"0"]


def test_records_that_are_refused_are_found_and_nothing_is_written(bench: Bench) -> None:
    bench.create(max_message_bytes="20000")
    # Any two of the others are more than the topic takes at once.
    sizes = [40_000 if n in {2, 6} else 12_000 for n in range(8)]
    records = [bench.record(n, Random(n).randbytes(size)) for n, size in enumerate(sizes)]
    with closing(bench.target()) as target:
        claim = target.claim((bench.topic, 0))
        with pytest.raises(RecordError):
            target.write(batch(records, claim))
        # Readers do not wait for the time-out of what has failed.
        eventually(lambda: bench.is_decided, timeout_s=20)
        found = target.refused(batch(records, claim))
        assert {n: why.partition(":")[0] for n, why in found.items()} == {
            2: "MSG_SIZE_TOO_LARGE",
            6: "MSG_SIZE_TOO_LARGE",
        }
        assert bench.read() == []
        assert target.positions() == {}
        kept = [record for n, record in enumerate(records) if n not in found]
        target.write(batch(kept, claim))
    assert bench.values() == [record.value for record in kept]


def test_a_key_is_needed_on_a_compacted_topic(bench: Bench) -> None:
    bench.create(cleanup_policy="compact")
    records = [bench.record(0), bench.record(1)._replace(key=None), bench.record(2)]
    with closing(bench.target()) as target:
        claim = target.claim((bench.topic, 0))
        with pytest.raises(RecordError):
            target.write(batch(records, claim))
        found = target.refused(batch(records, claim))
    assert [*found] == [1]
    assert found[1].startswith("INVALID_RECORD")


def test_topics_that_do_not_fit_are_refused(bench: Bench) -> None:
    create_topic(bench.source, bench.topic, PARTITIONS)
    with (
        closing(bench.target()) as target,
        pytest.raises(ConfigError, match="the topic does not exist"),
    ):
        target.check()
    with closing(bench.target(create=True)) as target:
        target.check()
        target.write(batch([bench.record(0, partition=1)], target.claim((bench.topic, 1))))
    assert bench.values(1) == [b"0"]
    small = f"{bench.topic}-small"
    create_topic(bench.address, small, 1)
    with (
        closing(bench.target(topic=small)) as target,
        pytest.raises(ConfigError, match="1 partitions; expected at least 2"),
    ):
        target.check()
    more = f"{bench.topic}-more"
    create_topic(bench.source, more, 1)
    with (
        closing(bench.target(topic=bench.topic, topics=(bench.topic, more))) as target,
        pytest.raises(ConfigError, match="sequences of several topics would mix"),
    ):
        target.check()


def test_a_loop_is_refused(bench: Bench) -> None:
    create_topic(bench.source, bench.topic, PARTITIONS)
    for wanted in ({}, {"topic": bench.topic}):
        with (
            closing(bench.target(bootstrap_servers=bench.source, **wanted)) as target,
            pytest.raises(ConfigError, match="cannot write to the topic that it reads"),
        ):
            target.check()
    copy = f"{bench.topic}-copy"
    block = {"bootstrap_servers": bench.source, "topic": copy, "create": True}
    with closing(bench.target(**block)) as target:
        target.check()


def test_a_topic_that_was_created_again_is_refused(bench: Bench) -> None:
    bench.create()
    with closing(bench.target()) as target:
        target.write(batch([bench.record(0)], target.claim((bench.topic, 0))))
        recreate_topic(bench.source, bench.topic, PARTITIONS)
        with pytest.raises(CorruptionError, match="the topic was deleted and created again"):
            target.claim((bench.topic, 0))


def test_what_a_client_may_not_be_told_is_refused_and_no_message_shows_it(bench: Bench) -> None:
    bench.create()
    file = bench.folder / "client.properties"
    file.write_text(
        "# ours\nsasl.username=jane\nsasl.password=s3cret-word\n"
        "enable.idempotence=false\nlinger.sm=3\nsecurity.protocol=SASL_PLAINTEXT\n"
    )
    with closing(bench.target(properties_file="client.properties")) as target:
        with pytest.raises(ConfigError) as refused:
            target.check()
        told = str(refused.value)
        assert "line 4, enable.idempotence: this client setting may not be set" in told
        assert "Did you mean `linger.ms`?" in told
        assert "one of PLAINTEXT, SSL, SASL_SSL" in told
        assert "s3cret-word" not in told
        file.write_text("linger.ms = 1\n\nclient.id=copier\n")
        target.check()
        file.unlink()
        with pytest.raises(ConfigError, match="cannot read `properties_file`"):
            target.check()


@pytest.mark.parametrize("on", ["request", "response"])
def test_a_commit_without_an_answer_is_settled_by_writing_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, on: Side
) -> None:
    """Whether the commit was lost, or only its answer."""
    bench.create()
    with ChaosProxy(bench.address) as proxy:
        block = {"bootstrap_servers": proxy.bootstrap_servers}
        with closing(bench.target(**block)) as target:
            target.check()
            written = batch([bench.record(0), bench.record(1)], target.claim((bench.topic, 0)))
            rule = proxy.add(Rule(api="EndTxn", on=on, action="drop"))
            monkeypatch.setattr(target_module, "TIMEOUT_S", 3.0)
            with pytest.raises(OutcomeUnknownError):
                target.write(written)
            assert rule.fired > 0
            rule.remove()
            monkeypatch.undo()
            target.write(written)
            target.write(batch([bench.record(2)], after(written)))
    assert bench.values() == [b"0", b"1", b"2"]


def test_a_commit_that_arrives_late_does_not_commit_a_later_transaction(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction has an initialisation of its own."""
    bench.create()
    with ChaosProxy(bench.address) as proxy:
        file = bench.folder / "properties"
        file.write_text("socket.timeout.ms=1000\n")
        block = {"bootstrap_servers": proxy.bootstrap_servers, "properties_file": file.name}
        with closing(bench.target(**block)) as target:
            claim = target.claim((bench.topic, 0))
            rule = proxy.add(Rule(api="EndTxn", on="request", action="hold", times=1))
            first = batch([bench.record(0)], claim)
            target.write(first)
            assert len(rule.held) == 1

            def crash(point: str) -> None:
                if point == CrashPoint.BEFORE_COMMIT:
                    rule.release()
                    eventually(lambda: proxy.delivered, timeout_s=30)
                    raise KeyboardInterrupt

            monkeypatch.setattr(positions_module, "reach", crash)
            with pytest.raises(KeyboardInterrupt):
                target.write(batch([bench.record(1)], after(first)))
            monkeypatch.undo()
            assert target.claim((bench.topic, 0)).mark == Mark(1, "after 1")
    assert bench.values() == [b"0"]


def test_brokers_that_are_down_are_reported_and_found_again(bench: Bench) -> None:
    with choose_broker().cluster(1) as cluster:
        bench.address = cluster.bootstrap_servers
        bench.create()
        with closing(bench.target()) as target:
            written = batch([bench.record(0)], target.claim((bench.topic, 0)))
            cluster.brokers[0].stop()
            with pytest.raises((RetriableError, DeadlineError)):
                target.probe()
            cluster.brokers[0].restart()
            cluster.wait_until_ready()
            target.probe()
            target.write(written)
        assert bench.values() == [b"0"]


def test_a_topic_of_positions_that_would_lose_them_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create()
    wrong = f"{bench.topic}-positions"
    create_topic(bench.address, wrong, 1)
    monkeypatch.setattr(positions_module, "DELIVERIES_TOPIC", wrong)
    with closing(bench.target()) as target, pytest.raises(ConfigError) as refused:
        target.check()
    told = str(refused.value)
    assert "1 partitions; expected 8 or more" in told
    assert "cleanup.policy is delete, which loses positions; expected compact" in told
    assert DELIVERIES_TOPIC == "onceflow.deliveries"


def test_a_topic_of_positions_that_is_deleted_stops_the_delivery(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create()
    own = f"{bench.topic}-positions"
    monkeypatch.setattr(positions_module, "DELIVERIES_TOPIC", own)
    with closing(bench.target()) as target:
        first = batch([bench.record(0)], target.claim((bench.topic, 0)))
        target.write(first)
        recreate_topic(bench.address, own, 8)
        for call in (
            lambda: target.write(batch([bench.record(1)], after(first))),
            lambda: target.claim((bench.topic, 0)),
        ):
            with pytest.raises(CorruptionError, match="the topic of positions was deleted"):
                call()
    assert bench.values() == [b"0"]
