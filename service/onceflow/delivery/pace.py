"""Limits of the rate at which records are delivered, alone or shared by deliveries."""

from __future__ import annotations

import threading

from onceflow.delivery.model import Rate
from onceflow.errors import ConfigError


class Pace:
    """Spaces batches so that no more than `records_per_second` are delivered in the long run.

    For several threads at once. A batch goes as a whole, and the next one waits for it.
    """

    def __init__(self, records_per_second: int) -> None:
        self.records_per_second = records_per_second
        self._free_at_s = 0.0
        self._lock = threading.Lock()

    def delay_s(self, records: int, now_s: float) -> float:
        """Take the turn of a batch.

        Args:
            records: of the batch.
            now_s: of a monotonic clock.

        Returns:
            Seconds to wait before it may go.
        """
        with self._lock:
            begins_s = max(self._free_at_s, now_s)
            self._free_at_s = begins_s + records / self.records_per_second
            return begins_s - now_s


class Paces:
    """The limits of one process, by the names under which deliveries share them."""

    def __init__(self) -> None:
        self._shared: dict[str, Pace] = {}
        self._lock = threading.Lock()

    def of(self, rate: Rate) -> Pace:
        """The limit of a delivery: its own, or the one that it shares.

        Raises:
            ConfigError: another delivery shares it under another rate.
        """
        wanted = rate.records_per_second
        if rate.shared is None:
            return Pace(wanted)
        with self._lock:
            pace = self._shared.setdefault(rate.shared, Pace(wanted))
        if pace.records_per_second != wanted:
            raise ConfigError(
                "deliveries that share a rate differ in it",
                subject=rate.shared,
                expected=f"{pace.records_per_second} records per second, as the first of them has",
                found=f"{wanted} records per second",
                then="this delivery is not started",
            )
        return pace
