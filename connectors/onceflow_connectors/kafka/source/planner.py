"""Decides how far a batch of the Kafka source reads: its half on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection, Place, TopicInfo
from onceflow.contracts.source import Position, SourceSpec, Split, TopicRanges
from onceflow.errors import NEW_GENERATION, ConfigError, CorruptionError, LineageError
from onceflow_connectors.kafka.admin.administration import Spot
from onceflow_connectors.kafka.source import position as positions
from onceflow_connectors.kafka.source.cut import Backlog, Cut, cut_in_proportion, cut_in_time
from onceflow_connectors.kafka.source.origin import KafkaOrigin, log_is_shorter
from onceflow_connectors.kafka.source.position import TopicPosition, Topics, decode, encode
from onceflow_connectors.kafka.source.source import KafkaSource

METADATA_MAX_AGE_S = 5.0
"""After this long, look for new topics and partitions again."""


class KafkaPlanner:
    """Implements `contracts.source.Planner`. Its memory only saves questions."""

    def __init__(
        self, block: KafkaSource, spec: SourceSpec, connection: Connection, clock: Clock
    ) -> None:
        self._block = block
        self._spec = spec
        self._topics = block.kafka_topics()
        self._clock = clock
        self._origin = KafkaOrigin(connection, clock)
        self._facts: Mapping[str, TopicInfo] = {}
        self._facts_until = clock.within(0.0)
        self._frozen: Cut | None = None
        self._last_cut_ms: int | None = None

    def initial_position(self) -> Position:
        facts = self._origin.topics(self._topics)
        if self._topics.pattern is not None and not facts:
            raise ConfigError("no topic matches the pattern", subject=self._topics.pattern)
        if missing := [name for name in self._topics.named if name not in facts]:
            raise ConfigError(
                "a source topic does not exist",
                subject=", ".join(missing),
                then="create it, or correct the name",
            )
        starts = self._starting_offsets(_places(facts))
        return encode(_entering({}, starts, facts))

    def latest_position(self, start: Position, max_records: int | None) -> Position:
        """Ask once if nothing is new, and twice if all of it fits."""
        kept, reached = self._parted(decode(start))
        self._check_selected(reached)
        newcomers = self._newcomers(reached)
        before = _entering(reached, newcomers, self._facts)
        starts = _next_offsets(before)
        known = self._frozen if self._frozen is not None else self._origin.ends(starts)
        backlog = Backlog(starts, {place: known.get(place, at) for place, at in starts.items()})
        _check_length(backlog)
        if backlog.size == 0 and not newcomers and not self._may_be_replaced(reached):
            return start
        self._check_identities(before)
        self._check_beginnings(newcomers)
        return encode({**kept, **_moved(before, self._cut(backlog, max_records))})

    def is_silent(self, position: Position) -> bool:
        """Ask once."""
        _, reached = self._parted(decode(position))
        standing = _next_offsets(reached)
        return not self._newcomers(reached) and self._origin.high_watermarks(standing) == standing

    def freeze_latest(self) -> None:
        self._frozen = self._origin.ends(_places(self._origin.topics(self._topics)))

    def ranges(self, start: Position | None, end: Position) -> TopicRanges:
        return positions.ranges(start, end)

    def position(self, like: Position | None, ranges: TopicRanges) -> Position:
        known = decode(like) if like is not None else {}
        # A pattern may have found a topic with this very batch.
        missing = dict.fromkeys(sorted(ranges.keys() - known.keys()), "")
        found = self._origin.known_topics(
            {topic: "" for topic in missing if topic not in self._topics.retired}
        )
        ids = missing | {topic: at.topic_id for topic, at in known.items()}
        return positions.at_end_of(ranges, ids | {name: at.topic_id for name, at in found.items()})

    def splits(self, start: Position, end: Position) -> Sequence[Split]:
        return positions.splits(start, end)

    def close(self) -> None:
        self._origin.close()

    def _parted(self, position: Topics) -> tuple[Topics, Topics]:
        """The topics that are retired, which stay where they are; and all others."""
        retired = {topic: at for topic, at in position.items() if topic in self._topics.retired}
        return retired, {topic: at for topic, at in position.items() if topic not in retired}

    def _check_beginnings(self, newcomers: Cut) -> None:
        """Check that no newcomer has lost records that were never read.

        Compaction never moves the start of a log, so compacted topics need no exemption.
        """
        trimmed = {place: start for place, start in newcomers.items() if start > 0}
        if trimmed and self._block.on_trimmed == "fail":
            raise CorruptionError(
                "records were deleted before they were read",
                subject=", ".join(
                    f"offsets [0, {start}) of {topic}-{partition}"
                    for (topic, partition), start in sorted(trimmed.items())
                ),
                expected="the whole log of a partition that appeared after the first start",
                found="a log whose first records retention or an operator has deleted",
                then="halting rather than leave them out: accept the loss with `on_trimmed: accept`"
                f" in the `kafka` block of source {self._spec.name}, which reads what is left; and"
                " keep records longer (retention.ms, retention.bytes)",
            )

    def _starting_offsets(self, places: Sequence[Place]) -> Cut:
        if self._block.starting == "earliest":
            return self._origin.starts(places)
        ends = self._origin.ends(places)
        if self._block.starting_ms is None:
            return ends
        found = self._origin.at_time(places, self._block.starting_ms)
        return Backlog(self._origin.starts(places), ends).clamp(_offsets(found))

    def _newcomers(self, reached: Topics) -> Cut:
        """Partitions that no position knows yet; they enter where their log starts."""
        if self._facts_until.is_over:
            self._facts = {**self._facts, **self._origin.topics(self._topics)}
            self._facts_until = self._clock.within(METADATA_MAX_AGE_S)
        known = _next_offsets(reached)
        unknown = [place for place in _places(self._facts) if place not in known]
        if self._frozen is not None:
            unknown = [place for place in unknown if place in self._frozen]
        return self._origin.starts(unknown)

    def _check_identities(self, before: Topics) -> None:
        """No topic was replaced: asked after the ends, so that they are those of these topics."""
        found = self._origin.known_topics({topic: at.topic_id for topic, at in before.items()})
        self._facts = {**self._facts, **found}

    def _may_be_replaced(self, reached: Topics) -> bool:
        """Whether another topic of a name was seen, which may have grown to the same length."""
        return any(
            at.topic_id not in {"", self._facts[topic].topic_id}
            for topic, at in reached.items()
            if topic in self._facts
        )

    def _check_selected(self, reached: Topics) -> None:
        if left_out := [name for name in reached if not self._topics.covers(name)]:
            raise LineageError(
                "the checkpoint holds topics that the source no longer reads",
                subject=f"source {self._spec.name}",
                found=", ".join(left_out),
                then="nothing was read; name them again, name them under `retired` to read them no"
                f" more, or {NEW_GENERATION}",
            )

    def _cut(self, backlog: Backlog, max_records: int | None) -> Cut:
        if max_records is None or backlog.size <= max_records:
            return backlog.ends
        if self._spec.lateness_ms is None:
            return cut_in_proportion(backlog, max_records)
        places = [place for place, at in backlog.starts.items() if at < backlog.ends[place]]
        if self._last_cut_ms is None:
            oldest = self._origin.at_time(places, 0).values()
            self._last_cut_ms = min((spot.timestamp_ms for spot in oldest if spot), default=0)
        newest = self._origin.newest(places).values()
        newest_ms = max((spot.timestamp_ms for spot in newest if spot), default=-1)
        cut, self._last_cut_ms = cut_in_time(
            backlog.only(places),
            max_records,
            (self._last_cut_ms, newest_ms),
            lambda at_ms: _offsets(self._origin.at_time(places, at_ms)),
        )
        return {**backlog.starts, **cut}


def _check_length(backlog: Backlog) -> None:
    for place, start in backlog.starts.items():
        if backlog.ends[place] < start:
            raise log_is_shorter(place, start, backlog.ends[place])


def _places(facts: Mapping[str, TopicInfo]) -> Sequence[Place]:
    return [place for topic in facts.values() for place in topic.places]


def _offsets(found: Mapping[Place, Spot | None]) -> Mapping[Place, int | None]:
    return {place: spot.offset if spot else None for place, spot in found.items()}


def _next_offsets(topics: Topics) -> Cut:
    return {
        (topic, partition): offset
        for topic, at in topics.items()
        for partition, offset in at.next_offsets.items()
    }


def _entering(reached: Topics, newcomers: Cut, facts: Mapping[str, TopicInfo]) -> Topics:
    """The positions before a batch: `starts` has those that have not been in one."""
    starts = {topic: {**at.waiting} for topic, at in reached.items()}
    for (topic, partition), offset in newcomers.items():
        starts.setdefault(topic, {})[partition] = offset
    new = {
        topic: TopicPosition(facts[topic].topic_id, ends={}, starts={})
        for topic in starts
        if topic not in reached
    }
    return {topic: replace(at, starts=starts[topic]) for topic, at in {**reached, **new}.items()}


def _moved(before: Topics, cut: Cut) -> Topics:
    """The positions after a batch that reads up to `cut`."""
    return {
        topic: replace(at, ends={p: cut[topic, p] for p in at.next_offsets})
        for topic, at in before.items()
    }
