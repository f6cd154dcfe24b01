"""Skips records of a delivery: moves its position past them, and leaves a gap record.

The gap record comes first, then the position. After a crash in between, it names records that are
delivered after all, or skipped again: nothing is left out without a record of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from onceflow.contracts.connector import Broker, Place
from onceflow.contracts.target import Batch, Claim, Mark, Move
from onceflow.contracts.values import Starting
from onceflow.crashpoints import CrashPoint, reach
from onceflow.delivery.model import Carriage, Lent
from onceflow.delivery.pending import Pending
from onceflow.delivery.rejects import SKIPPED, Dropped, Rejects
from onceflow.delivery.run import rejects_of, topic_ends
from onceflow.delivery.starting import LOOK_UP_TIMEOUT_S, offsets_at
from onceflow.errors import ConfigError
from onceflow_connectors.consumer import Hooks, OnFault, OnForeign, Rules
from onceflow_connectors.consumer.admission import Admission, Counters
from onceflow_connectors.consumer.filter import PartitionFilter

READ_TIMEOUT_S = 3_600.0
"""To read what is skipped of one partition."""
_PLACE = re.compile(r"(?P<topic>[^\[\]@]+)\[(?P<partition>\d+)\]@(?P<offset>\d+)")
_LENIENT = Rules(
    gap=OnFault.REPORT,
    divergence=OnFault.REPORT,
    foreign=OnForeign.DELIVER,
    new_lineage=OnFault.REPORT,
)
"""Whatever is wrong with a record that is skipped, it is skipped."""


@dataclass(frozen=True)
class Leap:
    """A part of one partition that is skipped.

    Args:
        start: the position now.
        end: the next offset to deliver afterwards.
    """

    place: Place
    start: int
    end: int


def parse_place(text: str) -> tuple[Place, int]:
    """Read `topic[partition]@offset`, as messages show a record.

    Raises:
        ConfigError: it is something else.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ConfigError(
            "not a place to skip to",
            subject=text,
            expected="`latest`, a time such as 2026-11-01T00:00:00Z, or views[0]@1234",
        )
    return (found["topic"], int(found["partition"])), int(found["offset"])


class Skipping:
    """Skips records of one delivery or enrichment. Close it."""

    def __init__(self, carriage: Carriage, lent: Lent) -> None:
        if carriage.dead_letter is None:
            raise ConfigError(
                "no topic is named for gap records",
                subject=carriage.name,
                expected="`dead_letter: {topic: ...}` in the file",
                then="nothing was skipped",
            )
        self._carriage = carriage
        self._lent = lent
        self._stack = ExitStack()
        with ExitStack() as undo:
            undo.push(self._stack)
            self._broker: Broker = self._stack.enter_context(
                closing(lent.connector.broker(lent.connection))
            )
            self._target = self._stack.enter_context(closing(carriage.target(lent)))
            self._broker.brokers(lent.clock.within(LOOK_UP_TIMEOUT_S))
            self._target.check()
            undo.pop_all()

    def close(self) -> None:
        """Free the connections."""
        self._stack.close()

    def leaps(self, to: Starting | Mapping[Place, int]) -> Sequence[Leap]:
        """Find what would be skipped. Changes nothing.

        Args:
            to: an end of the topics, a time, or an offset for some partitions.

        Raises:
            ConfigError: instances of the delivery run, a place is not of its topics, or is before
                the position.
        """
        self._require_stopped()
        deadline = self._lent.clock.within(LOOK_UP_TIMEOUT_S)
        bounds = topic_ends(self._carriage.source.topics, self._broker, deadline)
        marks = self._target.positions()
        ends = to if isinstance(to, Mapping) else self._ends(to)
        found = []
        for place, end in ends.items():
            if place not in bounds:
                raise ConfigError("not a partition of this delivery", subject=_text(place, end))
            first, last = bounds[place]
            mark = marks.get(place)
            start = max(first, mark.offset) if mark else first
            if isinstance(to, Mapping) and not start <= end <= last:
                raise ConfigError(
                    "a skip goes forward, to a record that is there or comes next",
                    subject=_text(place, end),
                    expected=f"an offset from {start} to {last}",
                    then="nothing was skipped",
                )
            if start < end:
                found.append(Leap(place, start, end))
        return found

    def carry_out(self, leaps: Sequence[Leap]) -> Iterator[tuple[Leap, int]]:
        """Skip, one partition after another; yields how many records that were.

        Raises:
            AbortableError: an instance has started; nothing more was skipped.
        """
        rejects = rejects_of(self._carriage, self._lent, self._broker, self._stack)
        for leap in leaps:
            yield leap, self._skip(leap, rejects)

    def _skip(self, leap: Leap, rejects: Rejects) -> int:
        claim = self._target.claim(leap.place)
        state, dropped = self._read(claim, leap)
        if dropped is not None:
            rejects.note([dropped], SKIPPED)
        reach(CrashPoint.BEFORE_COMMIT)
        move = Move(claim, Mark(leap.end, state.to_json()))
        self._target.write(Batch((), (), [move]))
        return dropped.count if dropped else 0

    def _read(self, claim: Claim, leap: Leap) -> tuple[PartitionFilter, Dropped | None]:
        """Read what is skipped: the filter has to know it, or would see a gap afterwards."""
        state = PartitionFilter()
        if claim.mark is not None and claim.mark.state:
            state = PartitionFilter.from_json(claim.mark.state)
        admission = Admission(_LENIENT, Hooks(), Counters())
        skipped = Pending()
        (topic, partition), offsets = leap.place, (leap.start, leap.end)
        deadline = self._lent.clock.within(READ_TIMEOUT_S)
        for record in self._broker.read(topic, {partition: offsets}, deadline):
            if admission.admit(record, state):
                skipped.drop(record)
        return state, skipped.dropped.get(leap.place)

    def _ends(self, to: Starting) -> Mapping[Place, int]:
        return {
            (topic, number): offset
            for topic in self._carriage.source.topics
            for number, offset in offsets_at(topic, to, self._broker, self._lent.clock).items()
        }

    def _require_stopped(self) -> None:
        group = self._carriage.group
        found = self._broker.group_members(group, self._lent.clock.within(LOOK_UP_TIMEOUT_S))
        if found:
            raise ConfigError(
                "instances of the delivery run",
                subject=self._carriage.name,
                expected="none",
                found=str(found),
                then="nothing was skipped; stop them first",
            )


def _text(place: Place, offset: int) -> str:
    return f"{place[0]}[{place[1]}]@{offset}"
