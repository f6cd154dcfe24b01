"""Where a delivery begins that has no position yet: decided once, and kept like a position.

All partitions of a topic begin together, at the first claim of one of them. Partition 0 comes last,
so its position says that all are decided. After a crash before that, those that have no position
yet begin where the log ends then. A partition that is added to the topic later is read from its
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from onceflow.clock import Clock
from onceflow.contracts.connector import Broker, Place
from onceflow.contracts.target import Batch, Claim, Mark, Move, Target
from onceflow.contracts.values import Starting, instant_ms
from onceflow_connectors.consumer.filter import PartitionFilter

LOOK_UP_TIMEOUT_S = 30.0
"""For one round of look-ups at the brokers."""
NOTHING_READ = PartitionFilter().to_json()
"""State of the filter before the first record, which then counts as the next one."""


class Beginning:
    """Claims partitions of a delivery that does not begin with the first record.

    Args:
        starting: `latest`, or the time of the first record to deliver.
    """

    def __init__(self, starting: Starting, target: Target, broker: Broker, clock: Clock) -> None:
        self._starting = starting
        self._target = target
        self._broker = broker
        self._clock = clock

    def claim(self, place: Place) -> Claim:
        """As `Target.claim`; where there is no position, one is written before it returns.

        Raises:
            AbortableError: another instance begins at the same time.
        """
        claim = self._target.claim(place)
        topic = place[0]
        if claim.mark is not None or (topic, 0) in self._target.positions():
            return claim
        for number, offset in sorted(self._offsets(topic).items(), reverse=True):
            one = self._target.claim((topic, number))
            if one.mark is None:
                move = Move(one, Mark(offset, NOTHING_READ))
                self._target.write(Batch((), (), [move]))
        return self._target.claim(place)

    def _offsets(self, topic: str) -> Mapping[int, int]:
        return offsets_at(topic, self._starting, self._broker, self._clock)


def offsets_at(topic: str, at: Starting, broker: Broker, clock: Clock) -> Mapping[int, int]:
    """The offset in each partition that a time or an end of the topic stands for.

    An end is that of what is committed: a transaction that is open counts as later.
    """
    deadline = clock.within(LOOK_UP_TIMEOUT_S)
    bounds = broker.offsets(topic, deadline)
    if isinstance(at, datetime):
        since = broker.offsets_since(topic, instant_ms(at), deadline)
        return {
            number: min(max(start, since.get(number, end)), end)
            for number, (start, end, _) in bounds.items()
        }
    return {n: start if at == "earliest" else end for n, (start, end, _) in bounds.items()}
