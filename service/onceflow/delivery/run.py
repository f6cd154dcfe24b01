"""Builds the parts of one delivery or enrichment, and runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, Connection, Place, TopicSpec
from onceflow.delivery.breaker import Breaker
from onceflow.delivery.carrier import Carrier, IsFinished, Stop
from onceflow.delivery.ending import CatchUp, Drain
from onceflow.delivery.model import Carriage, Lent
from onceflow.delivery.pace import Paces
from onceflow.delivery.rejects import LetterTopic, Rejects
from onceflow.delivery.starting import LOOK_UP_TIMEOUT_S, Beginning
from onceflow.delivery.survey import opened_survey
from onceflow.delivery.watch import watching
from onceflow.errors import ConfigError
from onceflow_connectors.consumer import Consumer, Hooks, OnFault, OnForeign, Rules

LETTER_PARTITIONS = 1
LETTER_LIMIT_BYTES = 1_000_000
"""Of a letter; a little less than what Kafka's topics take if they have no setting of their own."""
LONGEST_BATCH_MS = 3_600_000
"""After which Kafka gives the partitions to another instance, although this one lives. A target
that is down is waited for within a batch, and another instance could not write either."""
PREFETCH_KBYTES = 16 * 1024
"""Most that the client keeps of records that were not read yet, in all partitions together."""
PREFETCH_PAUSE_MS = 10
"""Before the client looks again whether there is room for more; a second by default, in which a
quick target has emptied it."""
_FOREIGN: Mapping[str, OnForeign] = {
    "fail": OnForeign.RAISE,
    "deliver": OnForeign.DELIVER,
    "drop": OnForeign.DROP,
}


@dataclass(frozen=True)
class Around(Lent):
    """The process that a delivery or an enrichment runs in, and what it lends it.

    Args:
        stop: set to end after the running batch.
        random: for jitter.
        paces: limits that several share.
    """

    stop: Stop
    random: Random
    paces: Paces = field(default_factory=Paces)


def run_carriage(carriage: Carriage, around: Around, *, is_until_caught_up: bool = False) -> None:
    """Carry until told to stop, or until what is there now is in the target.

    Raises:
        ConfigError: a topic does not exist, no broker answers, or the target does not fit.
        OnceflowError: as `Carrier.run`.
    """
    source = carriage.source
    with ExitStack() as stack:
        broker = around.connector.broker(around.connection)
        stack.callback(broker.close)
        deadline = around.clock.within(LOOK_UP_TIMEOUT_S)
        broker.brokers(deadline)
        ends = topic_ends(source.topics, broker, deadline)
        target = carriage.target(around)
        stack.callback(target.close)

        def catch_up() -> CatchUp:
            now = topic_ends(source.topics, broker, around.clock.within(LOOK_UP_TIMEOUT_S))
            return CatchUp(now, target, broker, around.clock)

        stop: Stop = around.stop
        is_finished: IsFinished = _never
        if is_until_caught_up:
            is_finished = CatchUp(ends, target, broker, around.clock).is_done
        elif (drain_ms := carriage.on_stop.drain_ms) is not None:
            drain = Drain(stop, drain_ms / 1000, catch_up, around.clock)
            stop, is_finished = drain, drain.is_finished
        named = {carriage.kind: carriage.name}
        guarantee = str(carriage.guarantee())
        around.report("delivering", **named, to=carriage.describe(), guarantee=guarantee)
        beginning = Beginning(source.starting, target, broker, around.clock)
        carrier = Carrier(
            consumer=_consumers(carriage, around.connection),
            target=target,
            claim=target.claim if source.starting == "earliest" else beginning.claim,
            decoder=carriage.decoder(),
            rejects=rejects_of(carriage, around, broker, stack),
            limits=carriage.limits,
            breaker=Breaker(carriage.patience, around.random),
            pace=around.paces.of(carriage.rate) if carriage.rate else None,
            max_age_ms=carriage.when_behind.max_age_ms,
            clock=around.clock,
            report=around.report,
            stop=stop,
            is_finished=is_finished,
        )
        open_survey = partial(opened_survey, carriage, around)
        with watching(open_survey, around.clock, around.report):
            ending = carrier.run()
        # After the last `progress`: readers take it for the end of the events.
        around.report(ending)


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


def _consumers(carriage: Carriage, connection: Connection) -> Callable[[Hooks], Consumer]:
    source = carriage.source
    rules = Rules(
        gap=OnFault.REPORT if source.on_gap == "continue" else OnFault.RAISE,
        foreign=_FOREIGN[source.foreign],
        cures=_cures(carriage.kind),
    )
    properties = {
        **connection.properties,
        "queued.max.messages.kbytes": PREFETCH_KBYTES,
        "fetch.queue.backoff.ms": PREFETCH_PAUSE_MS,
        "session.timeout.ms": source.takeover_after_ms,
        "max.poll.interval.ms": LONGEST_BATCH_MS,
        # Three may get lost.
        "heartbeat.interval.ms": source.takeover_after_ms // 4,
    }

    def consumer(hooks: Hooks) -> Consumer:
        return Consumer(
            connection.bootstrap_servers,
            group=carriage.group,
            topics=source.topics,
            rules=rules,
            hooks=hooks,
            properties=properties,
        )

    return consumer


def _cures(kind: str) -> Mapping[str, str]:
    """Tell what a user can do about faults of a topic, by the consumer's rule."""
    again = f"give the {kind} another name and an empty target, and begin again"
    return {
        "foreign": "this record was not written, and nothing after it; set `from.foreign` to"
        " `deliver` or `drop` if the topic may hold such records",
        "gap": "`from.on_gap: continue` goes on after them",
        "new_lineage": again,
        "divergence": again,
    }


def rejects_of(carriage: Carriage, around: Lent, broker: Broker, stack: ExitStack) -> Rejects:
    """Make what deals with rejected and skipped records; the stack closes it."""
    letters = None
    if carriage.dead_letter is not None:
        topic, clock = carriage.dead_letter.topic, around.clock
        deadline = clock.within(LOOK_UP_TIMEOUT_S)
        # Not without a look: to create needs a right of its own.
        if broker.topic_id(topic, deadline) is None:
            broker.create_topic(TopicSpec(topic, LETTER_PARTITIONS), deadline)
        found = broker.topic(topic, deadline)
        partitions = found.partitions if found else LETTER_PARTITIONS
        appender = around.connector.appender(around.connection)
        stack.callback(appender.close)
        letters = LetterTopic(topic, partitions, LETTER_LIMIT_BYTES, appender, clock)
    return Rejects(carriage.name, carriage.rejection, letters)
