"""The three delivery modes of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from onceflow.protocol.record import Flag


class Delivery(StrEnum):
    """The promise about each input record."""

    EXACTLY_ONCE = "exactly_once"
    """Records and `head` in one transaction; a replay of what is committed is skipped."""
    AT_LEAST_ONCE = "at_least_once"
    """Records first, without a transaction, then `head`; a replay writes the same records again."""
    AT_MOST_ONCE = "at_most_once"
    """`head` first, then the records; a replay is skipped, whether they were written or not."""

    @property
    def flag(self) -> Flag:
        """The mark on each record that tells readers which anomalies to expect."""
        return _FLAGS[self]


_FLAGS: Mapping[Delivery, Flag] = {
    Delivery.EXACTLY_ONCE: Flag(0),
    Delivery.AT_LEAST_ONCE: Flag.AT_LEAST_ONCE,
    Delivery.AT_MOST_ONCE: Flag.AT_MOST_ONCE,
}
