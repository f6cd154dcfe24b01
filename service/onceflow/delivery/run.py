"""Builds the parts of one delivery, and runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker, Connection, Connector, Place, TopicSpec
from onceflow.contracts.observer import Report
from onceflow.delivery.breaker import Breaker
from onceflow.delivery.carrier import Carrier, IsFinished, Stop
from onceflow.delivery.decoding import Decoder
from onceflow.delivery.ending import CatchUp, Drain
from onceflow.delivery.loader import DeliveryFile
from onceflow.delivery.making import make_target
from onceflow.delivery.model import Delivery
from onceflow.delivery.pace import Paces
from onceflow.delivery.rejects import LetterTopic, Rejects
from onceflow.delivery.survey import opened_survey
from onceflow.delivery.watch import watching
from onceflow.errors import ConfigError
from onceflow_connectors.consumer import Consumer, Hooks, OnFault, OnForeign, Rules

LOOK_UP_TIMEOUT_S = 30.0
"""For one round of look-ups at the brokers."""
LETTER_PARTITIONS = 1
LETTER_LIMIT_BYTES = 1_000_000
"""Of a letter; a little less than what Kafka's topics take if they have no setting of their own."""
LONGEST_BATCH_MS = 3_600_000
"""After which Kafka gives the partitions to another instance, although this one lives. A target
that is down is waited for within a batch, and another instance could not write either."""
PREFETCH_KBYTES = 16 * 1024
"""Most that the client keeps of records that were not read yet, in all partitions together."""
_FOREIGN: Mapping[str, OnForeign] = {
    "fail": OnForeign.RAISE,
    "deliver": OnForeign.DELIVER,
    "drop": OnForeign.DROP,
}


@dataclass(frozen=True)
class Around:
    """The process that a delivery runs in, and what it lends it.

    Args:
        stop: set to end after the running batch.
        random: for jitter.
        paces: limits that deliveries share.
    """

    connector: Connector
    connection: Connection
    clock: Clock
    report: Report
    stop: Stop
    random: Random
    paces: Paces = field(default_factory=Paces)


def run_delivery(file: DeliveryFile, around: Around, *, is_until_caught_up: bool = False) -> None:
    """Deliver until told to stop, or until what is there now is delivered.

    Raises:
        ConfigError: a topic does not exist, no broker answers, or the target does not fit.
        OnceflowError: as `Carrier.run`.
    """
    delivery = file.delivery
    source, block = delivery.source, delivery.to.block
    with ExitStack() as stack:
        broker = around.connector.broker(around.connection)
        stack.callback(broker.close)
        deadline = around.clock.within(LOOK_UP_TIMEOUT_S)
        broker.brokers(deadline)
        ends = topic_ends(source.topics, broker, deadline)
        target = make_target(delivery, around.connector, around.connection, around.clock)
        stack.callback(target.close)

        def catch_up() -> CatchUp:
            now = topic_ends(source.topics, broker, around.clock.within(LOOK_UP_TIMEOUT_S))
            return CatchUp(now, target, broker, around.clock)

        stop: Stop = around.stop
        is_finished: IsFinished = _never
        if is_until_caught_up:
            is_finished = CatchUp(ends, target, broker, around.clock).is_done
        elif (drain_ms := delivery.on_stop.drain_ms) is not None:
            drain = Drain(stop, drain_ms / 1000, catch_up, around.clock)
            stop, is_finished = drain, drain.is_finished
        report = around.report
        guarantee = str(delivery.guarantee())
        report("delivering", delivery=delivery.name, to=block.describe(), guarantee=guarantee)
        carrier = Carrier(
            consumer=_consumers(delivery, around.connection),
            target=target,
            decoder=Decoder(
                source.columns,
                source.columns.required | block.required_columns,
                block.deletes_by,
                makes_rows=block.takes_rows,
            ),
            rejects=_rejects(delivery, around, broker, stack),
            limits=delivery.batch,
            breaker=Breaker(delivery.retry, around.random),
            pace=around.paces.of(delivery.rate) if delivery.rate else None,
            max_age_ms=delivery.when_behind.max_age_ms,
            clock=around.clock,
            report=report,
            stop=stop,
            is_finished=is_finished,
        )
        open_survey = partial(
            opened_survey, delivery, around.connector, around.connection, around.clock
        )
        stack.enter_context(watching(open_survey, around.clock, report))
        carrier.run()


def topic_ends(
    topics: tuple[str, ...], broker: Broker, deadline: Deadline
) -> Mapping[Place, tuple[int, int]]:
    """First offset and end of the committed records of each partition.

    Raises:
        ConfigError: a topic does not exist.
    """
    found: dict[Place, tuple[int, int]] = {}
    missing = []
    for topic in topics:
        offsets = broker.offsets(topic, deadline)
        found |= {(topic, n): (start, end) for n, (start, end, _) in offsets.items()}
        if not offsets:
            missing.append(topic)
    if missing:
        then = "check the names, or start the pipeline that creates them"
        raise ConfigError("topics do not exist", subject=", ".join(missing), then=then)
    return found


def _never(*, is_idle: bool) -> bool:
    return False


def _consumers(delivery: Delivery, connection: Connection) -> Callable[[Hooks], Consumer]:
    source = delivery.source
    rules = Rules(
        gap=OnFault.REPORT if source.on_gap == "continue" else OnFault.RAISE,
        foreign=_FOREIGN[source.foreign],
    )
    properties = {
        **connection.properties,
        "queued.max.messages.kbytes": PREFETCH_KBYTES,
        "session.timeout.ms": source.takeover_after_ms,
        "max.poll.interval.ms": LONGEST_BATCH_MS,
        # Three may get lost.
        "heartbeat.interval.ms": source.takeover_after_ms // 4,
    }

    def consumer(hooks: Hooks) -> Consumer:
        return Consumer(
            connection.bootstrap_servers,
            group=delivery.group,
            topics=source.topics,
            rules=rules,
            hooks=hooks,
            properties=properties,
        )

    return consumer


def _rejects(delivery: Delivery, around: Around, broker: Broker, stack: ExitStack) -> Rejects:
    letters = None
    if delivery.dead_letter is not None:
        topic, clock = delivery.dead_letter.topic, around.clock
        deadline = clock.within(LOOK_UP_TIMEOUT_S)
        broker.create_topic(TopicSpec(topic, LETTER_PARTITIONS), deadline)
        found = broker.topic(topic, deadline)
        partitions = found.partitions if found else LETTER_PARTITIONS
        appender = around.connector.appender(around.connection)
        stack.callback(appender.close)
        letters = LetterTopic(topic, partitions, LETTER_LIMIT_BYTES, appender, clock)
    return Rejects(delivery.name, delivery.rejection, letters)
