"""Facts about a pipeline as seen from outside, at one moment. Only data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onceflow.contracts.connector import OpenTransaction
from onceflow.observe.retention import Forecast
from onceflow.protocol.bulletin import Bulletin, Ending
from onceflow.protocol.ledger import HeadEntry, OwnerEntry


@dataclass(frozen=True)
class InputFacts:
    """One partition that a source reads."""

    source: str
    topic: str
    partition: int
    position: int
    """Next offset to read."""
    last_stable_offset: int
    high_watermark: int
    newest_ms: int | None = None
    """Latest timestamp of its records; None if it has none."""
    undecided_ms: int | None = None
    """Timestamp of its first record that may not be decided; None if all are."""

    @property
    def lag(self) -> int:
        """Offsets that could be read now."""
        return max(0, self.last_stable_offset - self.position)

    @property
    def undecided(self) -> int:
        """Offsets that cannot be read before a transaction ends."""
        return self.high_watermark - self.last_stable_offset

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class OutputFacts:
    """The output topic as it is."""

    topic_id: str | None
    """None if there is no such topic."""
    in_sync: int = 0
    """Fewest replicas in sync of any partition."""
    min_in_sync: int = 0
    """Without so many, a partition takes no record."""


@dataclass(frozen=True)
class Facts:
    """A pipeline at one moment; None for what there is not, or could not be seen."""

    at_ms: int
    head: HeadEntry
    owner: OwnerEntry | None = None
    recent: Sequence[HeadEntry] = ()
    """The newest committed batches, oldest first; ends with `head`."""
    inputs: Sequence[InputFacts] = ()
    """Every partition of its position."""
    output: OutputFacts | None = None
    transactions: Sequence[OpenTransaction] = ()
    """Open ones in its input."""
    forecasts: Sequence[Forecast] = ()
    """Where retention overtakes it, if it stands still."""
    bulletin: Bulletin | None = None
    ending: Ending | None = None
    arrivals_per_s: float | None = None
    """Offsets that came in while it was watched."""
    event_time_sources: frozenset[str] | None = None
    blind: Mapping[str, str] = field(default_factory=dict)
    """What could not be seen -> why."""

    @property
    def lag(self) -> int | None:
        """Lag of all inputs together; None before the first batch, and if it could not be seen."""
        return lag_of(self.inputs)

    @property
    def waiting(self) -> str:
        """The lag, for people."""
        return waiting_text(self.lag)


def lag_of(inputs: Sequence[InputFacts]) -> int | None:
    """Lag of all partitions together; None if there is none."""
    return sum(one.lag for one in inputs) if inputs else None


def waiting_text(lag: int | None) -> str:
    """A lag, for people."""
    return "it is unknown how many records wait" if lag is None else f"{lag:,} records wait"


@dataclass(frozen=True)
class Holder:
    """The source whose newest record is the oldest: Spark's watermark waits for it.

    Within one source, Spark follows the partition that is furthest ahead.
    """

    source: str
    place: str | None
    """The partition with its newest record; None if it has no record."""
    newest_ms: int | None
    """Timestamp of that record."""
    behind_ms: int | None
    """How much older it is than the newest record of any source."""


def watermark_holder(facts: Facts) -> Holder | None:
    """Who holds the event watermark; None if no source has an event time."""
    timed = facts.event_time_sources
    newest: dict[str, InputFacts] = {}
    for one in facts.inputs:
        if timed is None or one.source in timed:
            newest[one.source] = max(newest.get(one.source, one), one, key=_age_order)
    if not newest:
        return None
    last = min(newest.values(), key=_age_order)
    if last.newest_ms is None:
        return Holder(last.source, None, None, None)
    ahead_ms = max(map(_age_order, newest.values()))
    return Holder(last.source, last.name, last.newest_ms, ahead_ms - last.newest_ms)


def _age_order(one: InputFacts) -> int:
    return one.newest_ms or -1
