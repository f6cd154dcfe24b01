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
    """One partition that a source reads.

    Args:
        position: next offset to read.
        last_stable_offset: the first that may not be decided.
        high_watermark: the next to be written.
        newest_ms: latest timestamp of its records; None if it has none.
        undecided_ms: timestamp of its first record that may not be decided; None if all are.
    """

    source: str
    topic: str
    partition: int
    position: int
    last_stable_offset: int
    high_watermark: int
    newest_ms: int | None = None
    undecided_ms: int | None = None

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
    """The output topic as it is.

    Args:
        topic_id: None if there is no such topic.
        in_sync: fewest replicas in sync of any partition.
        min_in_sync: without so many, a partition takes no record.
    """

    topic_id: str | None
    in_sync: int = 0
    min_in_sync: int = 0


@dataclass(frozen=True)
class Facts:
    """A pipeline at one moment.

    Args:
        at_ms: when it was looked at.
        owner: who may write; None if it was never claimed, or could not be read.
        recent: the newest committed batches, oldest first; ends with `head`.
        inputs: every partition of its position.
        output: None if it could not be looked at.
        transactions: open ones in its input.
        forecasts: where retention is to overtake it, taken to stand still.
        bulletin: the newest figures of a run; None if there are none.
        ending: the newest end of a run; None if there is none.
        arrivals_per_s: offsets that came in while it was looked at; None if that was not watched.
        event_time_sources: sources with an event time; None if unknown.
        blind: what could not be seen -> why.
    """

    at_ms: int
    head: HeadEntry
    owner: OwnerEntry | None = None
    recent: Sequence[HeadEntry] = ()
    inputs: Sequence[InputFacts] = ()
    output: OutputFacts | None = None
    transactions: Sequence[OpenTransaction] = ()
    forecasts: Sequence[Forecast] = ()
    bulletin: Bulletin | None = None
    ending: Ending | None = None
    arrivals_per_s: float | None = None
    event_time_sources: frozenset[str] | None = None
    blind: Mapping[str, str] = field(default_factory=dict)

    @property
    def lag(self) -> int | None:
        """Lag of all inputs together; None before the first batch, and if it could not be seen."""
        return sum(one.lag for one in self.inputs) if self.inputs else None

    @property
    def waiting(self) -> str:
        """The lag, for people."""
        lag = self.lag
        return "it is unknown how many records wait" if lag is None else f"{lag:,} records wait"


@dataclass(frozen=True)
class Holder:
    """The source whose newest record is the oldest: Spark's watermark waits for it.

    Within one source, Spark follows the partition that is furthest ahead.

    Args:
        place: the partition with its newest record; None if it has no record.
        newest_ms: timestamp of that record.
        behind_ms: how much older it is than the newest record of any source; None if it has none.
    """

    source: str
    place: str | None
    newest_ms: int | None
    behind_ms: int | None


def watermark_holder(facts: Facts) -> Holder | None:
    """Who holds the event watermark; None if no source has an event time."""
    newest: dict[str, InputFacts] = {}
    for one in facts.inputs:
        if facts.event_time_sources is not None and one.source not in facts.event_time_sources:
            continue
        best = newest.setdefault(one.source, one)
        if (one.newest_ms or -1) > (best.newest_ms or -1):
            newest[one.source] = one
    if not newest:
        return None
    last = min(newest.values(), key=lambda one: one.newest_ms or -1)
    if last.newest_ms is None:
        return Holder(last.source, None, None, None)
    ahead_ms = max(one.newest_ms or -1 for one in newest.values())
    return Holder(last.source, last.name, last.newest_ms, ahead_ms - last.newest_ms)
