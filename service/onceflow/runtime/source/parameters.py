"""Follows the topic of a pipeline's parameters, in the process that plans a source.

What it finds goes into the offset of that source, which Spark logs before the batch: so a change
begins with a batch, and a replay has the values of its batch, whatever is on the topic by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection
from onceflow.contracts.source import Position
from onceflow.errors import ConfigError, CorruptionError
from onceflow.processing.parameters import Parameter, Parameters
from onceflow.runtime.source.followed_topic import FollowedTopic


@dataclass(frozen=True)
class ParameterTopic:
    """The topic, for the process that plans."""

    topic: str
    parameters: Parameters

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ParameterTopic:
        """Inverse of `asdict`."""
        declared = told["parameters"]["declared"].items()
        return cls(told["topic"], Parameters({n: Parameter(**each) for n, each in declared}))


class ParameterFollower:
    """Reads what is new on the topic.

    Args:
        settings: where, and which parameters there are.
        connection: to the pipeline's brokers.
        clock: measures.
    """

    def __init__(self, settings: ParameterTopic, connection: Connection, clock: Clock) -> None:
        self._name, self._parameters = settings.topic, settings.parameters
        self._topic = FollowedTopic("parameters", settings.topic, connection, clock)
        self._reached: Position | None = None
        self._told: Mapping[str, Any] | None = None

    def next(self, told: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The part of an offset that follows another; the same one if nothing has changed.

        Args:
            told: as it is in the offset: `position` on the topic, `values`, and in `refused` how
                many records could not be used and what is wrong with the last; None before any.

        Raises:
            ConfigError: the topic has several partitions, or is gone.
        """
        before = told or {"position": None, "values": {}, "refused": [0, ""]}
        start = self._reached if told == self._told else before["position"]
        try:
            end, values, refused = self._fold(before["values"], start)
        except CorruptionError:
            # Another topic, or one whose older records were deleted. What is kept stays.
            end, values, refused = self._fold(before["values"], None)
        self._reached, self._told = end, told
        if values != before["values"] or refused:
            count, last = before["refused"]
            said = [count + len(refused), refused[-1] if refused else last]
            self._told = {"position": end, "values": values, "refused": said}
        return self._told

    def freeze(self) -> None:
        """From now on, see nothing that is not there yet."""
        self._topic.planner.freeze_latest()

    def close(self) -> None:
        """Let go of connections."""
        self._topic.close()

    def _fold(
        self, values: Mapping[str, str], start: Position | None
    ) -> tuple[Position, Mapping[str, str], Sequence[str]]:
        """Apply what is on the topic from `start` on: how far that is, and what comes of it."""
        planner = self._topic.planner
        begin = start or planner.initial_position()
        end = planner.latest_position(begin, None)
        if {each.partition for each in planner.splits(begin, end)} - {0}:
            raise ConfigError(
                "the topic of parameters has several partitions",
                subject=self._name,
                expected="1, so that changes have an order",
                then="name another topic; it is created as it must be",
            )
        records = ((record.key, record.value) for record in self._topic.read(begin, end))
        return end, *self._parameters.fold(values, records)
