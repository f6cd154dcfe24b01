"""The look before a claim: whether a start must be refused, found without stopping anybody."""

from __future__ import annotations

from collections.abc import Callable

from onceflow.clock import Clock, Deadline
from onceflow.contracts.sink import Ledger
from onceflow.errors import CorruptionError, DeadlineError
from onceflow.protocol.compare import Comparison
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow.protocol.ledger import HeadEntry

MAX_LOOKS = 5
"""A healthy predecessor moves `head` between the two reads of one look."""
LOOK_TIMEOUT_S = 5.0
"""For all of them. A healthy driver's transaction is open for milliseconds."""


def look(
    ledger: Ledger, compare: Callable[[HeadEntry | None], Comparison], clock: Clock
) -> HeadEntry | None:
    """Read `head` and compare the checkpoint with it, before a start stops any other instance.

    A running predecessor may move `head` between our two reads and make them contradict each
    other; then the comparison after the fence decides. Another lineage never becomes ours.

    Returns:
        What was read; None also if it could not be read in time.

    Raises:
        OnceflowError: what the comparison found, or that the ledger cannot be read; nothing was
            written.
    """
    deadline = clock.within(LOOK_TIMEOUT_S)
    try:
        return _look(ledger, compare, deadline)
    except DeadlineError:
        # A driver died with its transaction open, and only the fence can end that before
        # Kafka's time-out does. No healthy instance can be stopped: the comparison comes after it.
        return None


def _look(
    ledger: Ledger, compare: Callable[[HeadEntry | None], Comparison], deadline: Deadline
) -> HeadEntry | None:
    head = ledger.read_head(DRIVER_SLOT, deadline)
    for _ in range(MAX_LOOKS):
        error = compare(head).error
        if error is None:
            return head
        newer = ledger.read_head(DRIVER_SLOT, deadline)
        if newer == head or not isinstance(error, CorruptionError):
            raise error
        head = newer
    return head
