"""Looks at a pipeline from outside: its ledger, its brokers and the bulletins of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import (
    Broker,
    BulletinBoard,
    Connection,
    Connector,
    OpenTransaction,
)
from onceflow.contracts.sink import Ledger
from onceflow.errors import ConfigError
from onceflow.observe.facts import Facts, InputFacts, OutputFacts
from onceflow.observe.looking import REACH_TIMEOUT_S, Looking
from onceflow.observe.retention import Forecast, forecasts, positions_of
from onceflow.protocol.bulletin import END_KIND, RUNNING_KIND, Bulletin, Ending
from onceflow.protocol.identity import (
    DRIVER_SLOT,
    head_partition,
    is_kafka_topic,
    ledger_topic,
)
from onceflow.protocol.ledger import HEAD_KEY, HeadEntry, SinkState

TAIL_OFFSETS = 400
"""Of the ledger, for its newest batches: each takes two."""

HISTORY_TIMEOUT_S = 60.0

_T = TypeVar("_T")


@contextmanager
def opened_survey(
    pipeline: str,
    connector: Connector,
    connection: Connection,
    clock: Clock,
    event_time_sources: frozenset[str] | None = None,
) -> Iterator[Survey]:
    """Open a survey of a pipeline; arguments as of `Survey`.

    Raises:
        DeadlineError: no broker answers.
    """
    with (
        closing(connector.ledger(pipeline, connection)) as ledger,
        closing(connector.broker(connection)) as broker,
        closing(connector.bulletin_board(pipeline, connection)) as board,
    ):
        # A question about a topic waits much longer for brokers that are not there.
        broker.brokers(clock.within(REACH_TIMEOUT_S))
        yield Survey(pipeline, ledger, broker, board, clock, event_time_sources)


@dataclass
class Survey(Looking):
    """One look at a pipeline. What cannot be seen is named; only its ledger must be readable."""

    pipeline: str
    ledger: Ledger
    broker: Broker
    board: BulletinBoard
    clock: Clock
    event_time_sources: frozenset[str] | None = None
    blind: dict[str, str] = field(default_factory=dict)

    def facts(self) -> Facts:
        """Look.

        Raises:
            ConfigError: no such pipeline.
            OnceflowError: its ledger cannot be read.
        """
        recent = self._recent()
        head = recent[-1]
        unseen: Sequence[InputFacts] = ()
        inputs = self.attempt("input", lambda: [*self._inputs(head)], unseen)
        nothing: Mapping[int, str] = {}
        posted = self.attempt("bulletins", lambda: self.board.read(self.deadline()), nothing)
        return Facts(
            at_ms=self.clock.unix_ms(),
            head=head,
            owner=self.attempt("owner", lambda: self.ledger.read_owner(self.deadline()), None),
            recent=recent,
            inputs=inputs,
            output=self.attempt("output", lambda: self._output(head.sink), None),
            transactions=self.attempt(
                "transactions", lambda: transactions_in(self.broker, inputs, self.deadline()), ()
            ),
            forecasts=self.attempt("retention", lambda: self._forecasts(head), ()),
            bulletin=self._decoded(posted, RUNNING_KIND, Bulletin.from_json),
            ending=self._decoded(posted, END_KIND, Ending.from_json),
            event_time_sources=self.event_time_sources,
            blind=self.blind,
        )

    def history(self) -> Sequence[HeadEntry]:
        """Every readable `head`, oldest first; at least one.

        Raises:
            ConfigError: no such pipeline.
        """
        deadline = self.clock.within(HISTORY_TIMEOUT_S)
        found = self.ledger.history(DRIVER_SLOT, deadline) if self.ledger.exists(deadline) else ()
        return self._started([*found])

    def watched(self, facts: Facts, seconds: float) -> Facts:
        """The same, and how much comes in within some seconds from now."""
        before, from_s = self._written(facts), self.clock.monotonic_s()
        self.clock.sleep(seconds)
        after = self._written(facts)
        passed_s = self.clock.monotonic_s() - from_s
        if before is None or after is None or passed_s <= 0:
            return facts
        return replace(facts, arrivals_per_s=max(0, after - before) / passed_s)

    def _recent(self) -> Sequence[HeadEntry]:
        """Up to the last stable offset: an open transaction does not hold up the look."""
        topic, partition = ledger_topic(self.pipeline), head_partition(DRIVER_SLOT)
        offsets = self.broker.offsets(topic, self.deadline())
        found: list[HeadEntry] = []
        if partition in offsets:
            log_start, end, _ = offsets[partition]
            tail = {partition: (max(log_start, end - TAIL_OFFSETS), end)}
            found = [
                HeadEntry.from_json(record.value)
                for record in self.broker.read(topic, tail, self.deadline())
                if record.key == HEAD_KEY and record.value is not None
            ]
            if not found and (head := self.ledger.read_head(DRIVER_SLOT, self.deadline())):
                found = [head]
        return self._started(found)

    def _started(self, entries: Sequence[HeadEntry]) -> Sequence[HeadEntry]:
        if not entries:
            raise ConfigError(
                "this pipeline was never started at these brokers",
                subject=self.pipeline,
                then="check the name and the address",
            )
        return entries

    def _inputs(self, head: HeadEntry) -> Iterator[InputFacts]:
        deadline = self.deadline()
        for source, topics in sorted(head.plan.sources.items()):
            for topic, ranges in sorted(topics.items()):
                if not is_kafka_topic(topic):
                    self.blind[f"input of source {source}"] = (
                        f"{topic} is not a topic: this kind of source does not tell how many"
                        " records wait, how long they are kept, and when the newest was written"
                    )
                    continue
                positions = {partition: end for partition, (_, end) in ranges.items()}
                yield from inputs_of(self.broker, source, topic, positions, deadline)

    def _output(self, sink: SinkState) -> OutputFacts:
        found = self.broker.topic(sink.topic, self.deadline())
        if found is None:
            return OutputFacts(None)
        at_least = int(found.config.get("min.insync.replicas", "1"))
        return OutputFacts(found.topic_id, found.in_sync, at_least)

    def _forecasts(self, head: HeadEntry) -> Sequence[Forecast]:
        return forecasts(self.broker, positions_of(head), self.clock, self.deadline())

    def _written(self, facts: Facts) -> int | None:
        """Offsets in all its input topics together; None if they are not known."""
        if not facts.inputs:
            return None
        topics = {one.topic for one in facts.inputs}

        def ends() -> int:
            deadline = self.deadline()
            found = [self.broker.offsets(topic, deadline).values() for topic in topics]
            return sum(stable for offsets in found for _, stable, _ in offsets)

        return self.attempt("arrivals", ends, None)

    def _decoded(
        self, posted: Mapping[int, str], kind: int, decode: Callable[[str], _T]
    ) -> _T | None:
        if kind not in posted:
            return None
        return self.attempt("bulletins", lambda: decode(posted[kind]), None)


def inputs_of(
    broker: Broker, source: str, topic: str, positions: Mapping[int, int], deadline: Deadline
) -> Iterator[InputFacts]:
    """Every partition of a topic that is there, or that a position is known of."""
    offsets = broker.offsets(topic, deadline)
    newest = broker.newest_timestamps(topic, deadline)
    open_ends = {p: lso for p, (_, lso, end) in offsets.items() if lso < end}
    undecided = broker.first_timestamps(topic, open_ends, deadline)
    for partition in sorted({*positions, *offsets}):
        # One that was not read yet has what is there, not what was deleted.
        known = partition in positions
        position = positions[partition] if known else offsets[partition][0]
        _, stable, end = offsets.get(partition, (0, position, position))
        yield InputFacts(
            source=source,
            topic=topic,
            partition=partition,
            position=position,
            last_stable_offset=stable,
            high_watermark=end,
            newest_ms=newest.get(partition),
            undecided_ms=undecided.get(partition),
        )


def transactions_in(
    broker: Broker, inputs: Sequence[InputFacts], deadline: Deadline
) -> Sequence[OpenTransaction]:
    """Open transactions in the partitions that have undecided records."""
    held: dict[str, set[int]] = {}
    for one in inputs:
        if one.undecided:
            held.setdefault(one.topic, set()).add(one.partition)
    return [
        transaction
        for topic, partitions in held.items()
        for transaction in broker.open_transactions(topic, sorted(partitions), deadline)
    ]
