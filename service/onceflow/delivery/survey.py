"""Looks at a delivery or an enrichment from outside: its topics, its target, its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker, OpenTransaction, Place
from onceflow.contracts.target import Target
from onceflow.delivery.model import Carriage, Lent
from onceflow.errors import CorruptionError, OnceflowError
from onceflow.observe.facts import InputFacts, lag_of, waiting_text
from onceflow.observe.looking import REACH_TIMEOUT_S, Looking
from onceflow.observe.retention import Forecast, forecasts
from onceflow.observe.survey import inputs_of, transactions_in
from onceflow.texts import iso_text

T = TypeVar("T")


@dataclass(frozen=True)
class DeliveryFacts:
    """A delivery or an enrichment at one moment.

    Args:
        inputs: every partition of its topics; empty if the positions could not be seen.
        instances: that have joined its group; None if that could not be seen.
        failure: what the target answered to a look that carries no record; None if it is well.
        transactions: open ones in its topics.
        forecasts: where retention overtakes it, if it stands still.
        arrivals_per_s: offsets that came in while it was watched.
        delivered_per_s: offsets that it passed meanwhile.
        blind: what could not be seen, and why.
    """

    at_ms: int
    carriage: Carriage
    inputs: Sequence[InputFacts] = ()
    instances: int | None = None
    failure: OnceflowError | None = None
    transactions: Sequence[OpenTransaction] = ()
    forecasts: Sequence[Forecast] = ()
    arrivals_per_s: float | None = None
    delivered_per_s: float | None = None
    blind: Mapping[str, str] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Offsets that wait in all partitions together; None if that could not be seen."""
        return lag_of(self.inputs)

    @property
    def waiting(self) -> str:
        """The lag, for people."""
        return waiting_text(self.lag)


@contextmanager
def opened_survey(carriage: Carriage, lent: Lent) -> Iterator[DeliverySurvey]:
    """Open a survey of a delivery or an enrichment.

    Raises:
        DeadlineError: no broker answers.
        ConfigError: what the target needs is not installed, or a secret cannot be read.
    """
    with (
        closing(carriage.target(lent)) as target,
        closing(lent.connector.broker(lent.connection)) as broker,
    ):
        # A question about a topic waits much longer for brokers that are not there.
        broker.brokers(lent.clock.within(REACH_TIMEOUT_S))
        yield DeliverySurvey(carriage, target, broker, lent.clock)


@dataclass
class DeliverySurvey(Looking):
    """One look. What cannot be seen is named.

    Writes nothing, except what `Target.check` creates.
    """

    carriage: Carriage
    target: Target
    broker: Broker
    clock: Clock
    blind: dict[str, str] = field(default_factory=dict)

    def facts(self) -> DeliveryFacts:
        """Look."""
        failure = self._failure()
        inputs: Sequence[InputFacts] = ()
        if failure is None:
            inputs = self.attempt("positions", self.inputs, inputs)
        else:
            self.blind["positions"] = "they are in the target"
        group = self.carriage.group
        return DeliveryFacts(
            at_ms=self.clock.unix_ms(),
            carriage=self.carriage,
            inputs=inputs,
            instances=self.attempt(
                "instances", lambda: self.broker.group_members(group, self.deadline()), None
            ),
            failure=failure,
            transactions=self.attempt(
                "transactions", lambda: transactions_in(self.broker, inputs, self.deadline()), ()
            ),
            forecasts=self.attempt("retention", lambda: self._forecasts(inputs), ()),
            blind=self.blind,
        )

    def watched(self, facts: DeliveryFacts, seconds: float) -> DeliveryFacts:
        """The same, and what comes in and goes out within some seconds from now."""
        if not facts.inputs:
            return facts
        before, from_s = self._passed(), self.clock.monotonic_s()
        self.clock.sleep(seconds)
        after, passed_s = self._passed(), self.clock.monotonic_s() - from_s
        if before is None or after is None or passed_s <= 0:
            return facts
        came, went = (
            max(0, now - then) / passed_s for then, now in zip(before, after, strict=True)
        )
        return replace(facts, arrivals_per_s=came, delivered_per_s=went)

    def _failure(self) -> OnceflowError | None:
        try:
            self.target.check()
            self.target.probe()
        except OnceflowError as error:
            return error
        return None

    def inputs(self) -> Sequence[InputFacts]:
        """Every partition of its topics.

        Raises:
            OnceflowError: the target or the brokers did not tell.
        """
        marks, source = self.target.positions(), self.carriage.name
        found: list[InputFacts] = []
        for topic in self.carriage.source.topics:
            positions = {p: mark.offset for (name, p), mark in marks.items() if name == topic}
            inputs = inputs_of(self.broker, source, topic, positions, self.deadline())
            found += [self._without_marks(one) for one in inputs]
        return found

    def _without_marks(self, one: InputFacts) -> InputFacts:
        """The same, at its end if only marks of transactions and aborted records are left.

        No reader gets these, so a position stays before them until the next record.
        """
        if one.lag == 0:
            return one
        place, end = (one.topic, one.partition), one.last_stable_offset
        try:
            is_waiting = has_record(self.broker, place, (one.position, end), self.deadline())
        except CorruptionError:  # retention has overtaken the position
            return one
        return one if is_waiting else replace(one, position=end)

    def oldest_waiting_ms(self, inputs: Sequence[InputFacts]) -> int | None:
        """Timestamp of the oldest record that waits, in Unix milliseconds; None if none does.

        Raises:
            OnceflowError: the brokers did not tell.
        """
        found: list[int] = []
        for topic, positions in positions_in([one for one in inputs if one.lag]).items():
            found += self.broker.first_timestamps(topic, positions, self.deadline()).values()
        return min(found, default=None)

    def _forecasts(self, inputs: Sequence[InputFacts]) -> Sequence[Forecast]:
        return forecasts(self.broker, positions_in(inputs), self.clock, self.deadline())

    def _passed(self) -> tuple[int, int] | None:
        """Offsets that are there, and those before the positions, in all partitions together."""

        def passed() -> tuple[int, int]:
            inputs = self.inputs()
            ends = sum(one.last_stable_offset for one in inputs)
            return ends, sum(one.position for one in inputs)

        return self.attempt("rates", passed, None)


def has_record(broker: Broker, place: Place, offsets: tuple[int, int], deadline: Deadline) -> bool:
    """Whether a range holds more than marks of transactions, and aborted records.

    Raises:
        CorruptionError: it begins before what the partition still holds.
    """
    topic, partition = place
    return next(iter(broker.read(topic, {partition: offsets}, deadline)), None) is not None


def positions_in(inputs: Sequence[InputFacts]) -> Mapping[str, Mapping[int, int]]:
    """Topic -> partition -> next offset to read."""
    found: dict[str, dict[int, int]] = {}
    for one in inputs:
        found.setdefault(one.topic, {})[one.partition] = one.position
    return found


def fields_of(facts: DeliveryFacts, time_text: Callable[[int], str] = iso_text) -> dict[str, Any]:
    """Summarise as plain data: for `status`."""
    carriage = facts.carriage
    return {
        carriage.kind: carriage.name,
        "to": carriage.describe(),
        "guarantee": str(carriage.guarantee()),
        "target": "well" if facts.failure is None else str(facts.failure),
        "instances": facts.instances,
        "lag": facts.lag,
        "topics": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "position": one.position,
                "lag": one.lag,
                "undecided": one.undecided,
                "newest_record": time_text(one.newest_ms or 0),
            }
            for one in facts.inputs
        ],
        "open_transactions": [asdict(transaction) for transaction in facts.transactions],
        "retention": [{**asdict(one), "is_soon": one.is_soon} for one in facts.forecasts],
        "not_seen": dict(facts.blind),
    }
