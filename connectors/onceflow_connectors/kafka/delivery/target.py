"""Another Kafka cluster as a target: records and position in one transaction per partition.

Positions are in the target cluster, so a crash, a lost answer and a rebalance all end with reading
them there. A batch of several partitions is several transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection, Place, TopicInfo, TopicSpec
from onceflow.contracts.record import Record
from onceflow.contracts.sink import OutputRecord
from onceflow.contracts.target import Batch, Claim, Mark
from onceflow.contracts.target_block import TargetSpec
from onceflow.errors import ConfigError, Fault, OnceflowError, RecordError, RetriableError
from onceflow.protocol.identity import delivery_transactional_id
from onceflow.protocol.record import HEADER_NAME
from onceflow_connectors.kafka.admin.administration import Administration
from onceflow_connectors.kafka.admin.broker import KafkaBroker
from onceflow_connectors.kafka.delivery.block import KafkaBlock
from onceflow_connectors.kafka.delivery.positions import KafkaPositions
from onceflow_connectors.kafka.delivery.properties import read_properties
from onceflow_connectors.kafka.sink.incarnation import KafkaIncarnation
from onceflow_connectors.kafka.sink.partitioners import partitions_of

TIMEOUT_S = 60.0
"""For one transaction, a claim, or a look at the cluster."""
BATCH_BYTES = 1_000_000
"""librdkafka's own limit of what travels together."""
OVERHEAD_BYTES = 1024
"""Of a request's batch of records, which a topic's limit includes."""
MIN_BATCH_BYTES = 1024
TRIAL = ".trial"
"""End of the transactional id under which records that are refused are searched for."""


@dataclass
class _Open:
    """Connections, and the target's topics by the names of those that are read."""

    connection: Connection
    broker: KafkaBroker
    source: Administration
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    positions: KafkaPositions = field(init=False)

    def close(self) -> None:
        if hasattr(self, "positions"):
            self.positions.close()
        self.source.close()
        self.broker.close()


class KafkaTarget:
    """Implements `contracts.target.Target`.

    Args:
        connection: to the target's brokers; None: as the block says, whenever it connects.
    """

    def __init__(
        self, block: KafkaBlock, spec: TargetSpec, connection: Connection | None = None
    ) -> None:
        self._given = connection
        self._block = block
        self._spec = spec
        self._opened: _Open | None = None
        self._positions_id: str | None = None

    def check(self) -> None:
        self.close()
        self._open(self._deadline())

    def probe(self) -> None:
        deadline = self._deadline()
        with self._lent(deadline) as opened:
            _look(opened.broker, deadline)
            opened.topics = self._topics(opened.broker, opened.source, deadline)

    def claim(self, place: Place) -> Claim:
        deadline = self._deadline()
        with self._lent(deadline) as opened:
            return opened.positions.claim(place, deadline)

    def positions(self) -> Mapping[Place, Mark]:
        deadline = self._deadline()
        with self._lent(deadline) as opened:
            return opened.positions.positions(deadline)

    def write(self, batch: Batch) -> None:
        parts: dict[Place, list[Record]] = {move.claim.place: [] for move in batch.moves}
        for record in batch.records:
            parts[record.topic, record.partition].append(record)
        for move in batch.moves:
            place, deadline = move.claim.place, self._deadline()
            with self._lent(deadline) as opened:
                to = opened.topics[place[0]]
                output = (to.name, self._copies(parts[place], to)) if parts[place] else None
                opened.positions.move(move, deadline, output)

    def refused(self, batch: Batch) -> Mapping[int, str]:
        """Write records in transactions that are aborted, in halves down to the refused ones.

        They stay in the target's log as aborted records do: committed readers never see them.
        """
        found: dict[int, str] = {}
        self.check()
        with self._lent(self._deadline()) as opened:
            self._search(opened, batch, range(len(batch.records)), found)
            self._try(opened, batch, ())
        return found

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _search(self, opened: _Open, batch: Batch, part: range, found: dict[int, str]) -> None:
        records = [batch.records[n] for n in part]
        try:
            self._try(opened, batch, records)
        except RecordError as error:
            if len(part) == 1:
                found[part.start] = error.found
                return
            middle = part.start + len(part) // 2
            self._search(opened, batch, range(part.start, middle), found)
            self._search(opened, batch, range(middle, part.stop), found)

    def _try(self, opened: _Open, batch: Batch, records: Sequence[Record]) -> None:
        """Write records and abort, at the latest with the next initialisation of the id.

        Raises:
            RecordError: one of them is refused.
            RetriableError: the trial failed in another way.
        """
        deadline = self._deadline()
        place = batch.moves[0].claim.place
        name = delivery_transactional_id(self._spec.delivery, *place) + TRIAL
        incarnation = KafkaIncarnation(name, opened.connection)
        try:
            incarnation.initialise(deadline)
            if records:
                incarnation.begin()
            for record in records:
                to = opened.topics[record.topic]
                incarnation.send(to.name, self._copies([record], to), deadline)
            if records:
                incarnation.flush(deadline)
                incarnation.abort(deadline)
        except (RecordError, ConfigError):
            raise
        except OnceflowError as error:
            what = "refused records cannot be searched for"
            raise RetriableError(what, subject=name, found=str(error)) from error
        finally:
            incarnation.discard()

    def _copies(self, records: Sequence[Record], to: TopicInfo) -> list[OutputRecord]:
        if self._block.partition == "same":
            return [_copy(record, record.partition, record.headers) for record in records]
        numbers = partitions_of("murmur2", [record.key for record in records], to.partitions)
        return [
            _copy(record, n, tuple(each for each in record.headers if each[0] != HEADER_NAME))
            for n, record in zip(numbers, records, strict=True)
        ]

    @contextmanager
    def _lent(self, deadline: Deadline) -> Iterator[_Open]:
        """Lend the connections. After an error, others are made, by the settings of that time."""
        opened = self._opened or self._open(deadline)
        try:
            yield opened
        except RecordError:
            raise
        except BaseException:
            self.close()
            raise

    def _open(self, deadline: Deadline) -> _Open:
        connection = self._connection()
        opened = _Open(connection, KafkaBroker(connection), Administration(self._spec.connection))
        try:
            _look(opened.broker, deadline)
            self._refuse_loop(opened.broker, deadline)
            opened.topics = self._topics(opened.broker, opened.source, deadline)
            opened.connection = _within_limits(connection, opened.topics.values())
            opened.positions = KafkaPositions(
                self._spec.delivery, opened.connection, self._spec.connection, self._positions_id
            )
            opened.positions.check(deadline)
        except BaseException:
            opened.close()
            raise
        self._positions_id = opened.positions.topic_id
        self._opened = opened
        return opened

    def _connection(self) -> Connection:
        if self._given is not None:
            return self._given
        name = self._block.properties_file
        properties = read_properties(self._spec.folder / name) if name else {}
        return Connection(self._block.bootstrap_servers, properties)

    def _refuse_loop(self, broker: KafkaBroker, deadline: Deadline) -> None:
        names = {self._block.topic or name for name in self._spec.topics}
        loops = sorted(names & set(self._spec.topics))
        if not loops:
            return
        source = KafkaBroker(self._spec.connection)
        try:
            is_same = source.cluster_id(deadline) == broker.cluster_id(deadline)
        finally:
            source.close()
        if is_same:
            raise ConfigError(
                "a delivery cannot write to the topic that it reads",
                subject=f"{', '.join(loops)} at {self._block.bootstrap_servers}",
                expected="another cluster, or another topic",
                found="the cluster that the topic is read from",
                then="nothing was written; correct `bootstrap_servers`, or name another `topic`",
            )

    def _topics(
        self, broker: KafkaBroker, source: Administration, deadline: Deadline
    ) -> Mapping[str, TopicInfo]:
        """Return the target's topics, by the names of those that are read.

        Raises:
            ConfigError: lists all that do not fit.
        """
        found: dict[str, TopicInfo] = {}
        faults: list[Fault] = []
        read = source.topics(self._spec.topics, deadline)
        unread = sorted({*self._spec.topics} - read.keys())
        faults += [Fault("the topic that is read does not exist", name) for name in unread]
        for name, topic in read.items():
            target = self._block.topic or name
            if self._block.create and broker.topic_id(target, deadline) is None:
                broker.create_topic(TopicSpec(target, topic.partitions), deadline)
            to = broker.topic(target, deadline)
            if to is None:
                suggestion = "Create it, correct `topic`, or set `create: true`."
                faults.append(Fault("the topic does not exist", target, suggestion=suggestion))
            else:
                found[name] = to
                faults += self._misfits(topic, to)
        if len(read) > 1 and self._block.topic and self._block.partition == "same":
            faults.append(
                Fault(
                    "sequences of several topics would mix",
                    where=self._block.topic,
                    suggestion="Leave out `topic`, write a delivery for each, or set"
                    " `partition: key`.",
                )
            )
        if faults:
            where = f"Kafka at {self._block.bootstrap_servers}"
            what = "the target does not fit the delivery"
            raise ConfigError(what, subject=where, faults=tuple(faults))
        return found

    def _misfits(self, topic: TopicInfo, to: TopicInfo) -> Iterator[Fault]:
        if self._block.partition == "same" and to.partitions < topic.partitions:
            yield Fault(
                f"{to.partitions} partitions",
                where=to.name,
                expected=f"at least {topic.partitions}, as the topic {topic.name} has",
                suggestion="Add partitions, or set `partition: key`.",
            )

    def _deadline(self) -> Deadline:
        return self._spec.clock.within(TIMEOUT_S)


def _look(broker: KafkaBroker, deadline: Deadline) -> None:
    """Look whether the brokers answer, and let us in."""
    try:
        broker.brokers(deadline)
    except ConfigError as error:
        error.then = "nothing was written; correct `properties_file`"
        raise


def _within_limits(connection: Connection, topics: Iterable[TopicInfo]) -> Connection:
    """The same, whose producers put no more records together than each topic takes at once.

    Otherwise a broker would refuse records because of others that travelled with them.
    """
    limits = [int(topic.config["max.message.bytes"]) - OVERHEAD_BYTES for topic in topics]
    batch_bytes = max(MIN_BATCH_BYTES, min([BATCH_BYTES, *limits]))
    properties = {"batch.size": str(batch_bytes), **connection.properties}
    return replace(connection, properties=properties)


def _copy(
    record: Record, partition: int, headers: tuple[tuple[str, bytes | None], ...]
) -> OutputRecord:
    return OutputRecord(
        partition=partition,
        key=record.key,
        value=record.value,
        timestamp_ms=record.timestamp_ms,
        more_headers=headers,
    )
