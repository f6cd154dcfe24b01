"""When a topic's retention overtakes a pipeline, predicted; and a watch that warns of it in time.

Kafka deletes by the timestamps of records (`retention.ms`) and by the size of a partition
(`retention.bytes`). What is deleted before it was read is lost to the pipeline, which then halts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Broker
from onceflow.errors import Fault, OnceflowError
from onceflow.protocol.identity import is_kafka_topic
from onceflow.protocol.ledger import HeadEntry
from onceflow.texts import span_text

EARLY_S = 24 * 3600.0
"""Warn only when less than this is left,"""
EARLY_SHARE = 0.5
"""and less than this share of the time for which a record is kept."""
LOOK_INTERVAL_S = 30.0
"""Between two looks: prediction needs their distance, and look-ups are not free."""
LOOK_TIMEOUT_S = 3.0
"""For one look; a drain may have to wait for it."""
SPEED_LOOKS = 10
"""How far back speed is measured: over many batches, during each of which a position is still."""
MAX_LOOKS = 120
"""That are remembered, an hour. The start of a log moves by whole segments, some minutes apart."""
REPEAT_SHARE = 0.5
"""A warning is repeated when only this share of the time is left that the last one told of."""

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Limits:
    """How long and how much a topic keeps; None for no limit."""

    retention_ms: int | None
    retention_bytes: int | None

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Limits:
        """From the effective settings of a topic."""
        if "delete" not in config.get("cleanup.policy", "delete"):
            return cls(None, None)
        return cls(_limit(config, "retention.ms"), _limit(config, "retention.bytes"))


@dataclass(frozen=True)
class LogSpot:
    """Where a pipeline stood in a partition, and what the partition held."""

    at_ms: int
    position: int
    """Next offset to read."""
    log_start: int
    end: int
    record_ms: int | None
    """Timestamp of the record at the position; None if there is none yet."""


@dataclass(frozen=True)
class Forecast:
    """Retention will overtake the pipeline here, if everything goes on as it does."""

    place: Place
    left_s: float
    """Until then; 0 if it has."""
    rule: str
    """The setting that deletes."""
    share_left: float
    """How much of what the setting keeps is still ahead of the limit, from 1 to 0."""

    @property
    def is_soon(self) -> bool:
        """Whether to warn."""
        return self.left_s < EARLY_S and self.share_left < EARLY_SHARE

    def __str__(self) -> str:
        name = f"{self.place[0]}-{self.place[1]}"
        if self.left_s <= 0:
            return f"retention has overtaken {name}"
        return f"{self.rule} overtakes {name} in {span_text(self.left_s)}"

    def warning(self, reader: str) -> Fault:
        """The warning as text for people.

        Args:
            reader: `pipeline` or `delivery`.
        """
        return Fault(
            f"retention will overtake the {reader} in {span_text(self.left_s)}"
            if self.left_s > 0
            else f"retention has overtaken the {reader}",
            where=f"{self.place[0]}-{self.place[1]}",
            expected=f"records to be read before {self.rule} deletes them",
            suggestion=f"Keep them longer ({self.rule}) or read faster; once they are gone, the"
            f" {reader} halts rather than leave them out.",
        )


def forecast(place: Place, limits: Limits, spots: Sequence[LogSpot]) -> Forecast | None:
    """When retention overtakes a position; None if it does not.

    The spots are at least one look, oldest first. A single one does not tell how fast things move:
    the pipeline is then taken to stand still, and so is the log's start.
    """
    now = spots[-1]
    if now.position < now.log_start:
        return Forecast(place, 0.0, "retention", 0.0)
    before = spots[max(0, len(spots) - 1 - SPEED_LOOKS)]
    found = [*_by_time(place, limits, now, before), *_by_size(place, limits, now, spots[0])]
    return min(found, key=lambda one: one.left_s, default=None)


def look(
    broker: Broker,
    positions: Mapping[str, Mapping[int, int]],
    clock: Clock,
    deadline: Deadline,
) -> Mapping[Place, tuple[Limits, LogSpot]]:
    """Look at every partition that has something unread and does not keep it forever.

    Args:
        broker: to ask.
        positions: topic -> partition -> next offset to read.
        clock: of this machine.
        deadline: for all questions.

    Raises:
        OnceflowError: the brokers did not tell.
    """
    found: dict[Place, tuple[Limits, LogSpot]] = {}
    for topic, at_of in positions.items():
        info = broker.topic(topic, deadline)
        limits = Limits.of(info.config) if info else Limits(None, None)
        if limits == Limits(None, None):
            continue
        offsets = broker.offsets(topic, deadline)
        unread = {p: at for p, at in at_of.items() if p in offsets and at < offsets[p][2]}
        existing = {p: at for p, at in unread.items() if at >= offsets[p][0]}
        record_ms = broker.first_timestamps(topic, existing, deadline)
        now_ms = clock.unix_ms()
        for p, at in unread.items():
            spot = LogSpot(now_ms, at, offsets[p][0], offsets[p][2], record_ms.get(p))
            found[topic, p] = limits, spot
    return found


def forecasts(
    broker: Broker,
    positions: Mapping[str, Mapping[int, int]],
    clock: Clock,
    deadline: Deadline,
) -> Sequence[Forecast]:
    """Where retention overtakes a reader that stands still, from one look; arguments as of `look`.

    Raises:
        OnceflowError: the brokers did not tell.
    """
    seen = look(broker, positions, clock, deadline)
    found = [forecast(place, limits, [spot]) for place, (limits, spot) in seen.items()]
    return [one for one in found if one is not None]


def positions_of(head: HeadEntry) -> Mapping[str, Mapping[int, int]]:
    """Topic -> partition -> next offset to read; of two sources of a topic, the lower.

    What is not read from Kafka is left out: how long it is kept is not known.
    """
    found: dict[str, dict[int, int]] = {}
    for topics in head.plan.sources.values():
        for topic, ranges in topics.items():
            if not is_kafka_topic(topic):
                continue
            at = found.setdefault(topic, {})
            for partition, (_, end) in ranges.items():
                at[partition] = min(end, at.get(partition, end))
    return found


@dataclass
class RetentionGuard:
    """Looks now and then while a pipeline or a delivery runs, and warns. Never ends the run.

    Warns early, and again whenever half of the time told last is over.

    Args:
        positions: topic -> partition -> next offset to read. May raise OnceflowError.
        reader: `pipeline` or `delivery`.
    """

    broker: Broker
    positions: Callable[[], Mapping[str, Mapping[int, int]]]
    clock: Clock
    warn: Callable[[str], None]
    reader: str = "pipeline"
    nearest: Forecast | None = field(default=None, init=False)
    """Where retention overtakes the pipeline first; None if nowhere."""
    _spots: dict[Place, deque[LogSpot]] = field(default_factory=dict, init=False)
    _told_s: dict[Place, float] = field(default_factory=dict, init=False)
    _next_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._next_s = self.clock.monotonic_s() + LOOK_INTERVAL_S

    def __call__(self) -> None:
        """Look, if it is time for it. The first look warns of nothing: it knows no speed yet."""
        if self.clock.monotonic_s() < self._next_s:
            return
        try:
            deadline = self.clock.within(LOOK_TIMEOUT_S)
            seen = look(self.broker, self.positions(), self.clock, deadline)
        except OnceflowError:
            # Nothing is known; a query that may be well goes on.
            return
        finally:
            self._next_s = self.clock.monotonic_s() + LOOK_INTERVAL_S
        # A partition that is read to its end is forgotten: nothing of it can be lost.
        self._spots = {place: self._spots.get(place, deque(maxlen=MAX_LOOKS)) for place in seen}
        found = []
        for place, (limits, spot) in seen.items():
            spots = self._spots[place]
            spots.append(spot)
            if len(spots) > 1 and (one := forecast(place, limits, spots)):
                found.append(one)
        self._judge(found)

    def left_s(self) -> float | None:
        """Time until retention overtakes the pipeline somewhere; None if it does not."""
        return None if self.nearest is None else self.nearest.left_s

    def _judge(self, found: Sequence[Forecast]) -> None:
        self.nearest = min(found, key=lambda one: one.left_s, default=None)
        soon = {one.place: one for one in found if one.is_soon}
        self._told_s = {place: told for place, told in self._told_s.items() if place in soon}
        for place, one in soon.items():
            told_s = self._told_s.get(place)
            if told_s is None or one.left_s < told_s * REPEAT_SHARE:
                self._told_s[place] = one.left_s
                self.warn(str(one.warning(self.reader)))


def _by_time(place: Place, limits: Limits, now: LogSpot, before: LogSpot) -> Iterator[Forecast]:
    if limits.retention_ms is None or now.record_ms is None:
        return
    left_ms = max(0, now.record_ms + limits.retention_ms - now.at_ms)
    # How much younger the record at the position gets with each second.
    speed = 0.0
    if before.record_ms is not None and now.at_ms > before.at_ms:
        speed = max(0.0, (now.record_ms - before.record_ms) / (now.at_ms - before.at_ms))
    if speed < 1:
        share = left_ms / max(1, limits.retention_ms)
        yield Forecast(place, left_ms / (1 - speed) / 1000, "retention.ms", share)


def _by_size(place: Place, limits: Limits, now: LogSpot, before: LogSpot) -> Iterator[Forecast]:
    gained = (now.log_start - before.log_start) - (now.position - before.position)
    if limits.retention_bytes is None or gained <= 0:
        return
    left = now.position - now.log_start
    left_ms = left * (now.at_ms - before.at_ms) / gained
    share = left / max(1, now.end - now.log_start)
    yield Forecast(place, left_ms / 1000, "retention.bytes", share)


def _limit(config: Mapping[str, str], name: str) -> int | None:
    value = int(config.get(name, "-1"))
    return value if value >= 0 else None
