"""The metrics of enrichments that Prometheus scrapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from prometheus_client.metrics_core import Metric

from onceflow.delivery.metrics import DeliveryMetrics


class EnrichmentMetrics(DeliveryMetrics):
    """Those of deliveries under another name, and what is asked."""

    kind = "enrichment"
    counts: ClassVar[Mapping[str, str]] = {
        **DeliveryMetrics.counts,
        "asked": "Questions that were sent.",
        "cached": "Records whose answer was there already.",
        "ask_failed": "Questions that had no answer, and were or will be asked again.",
        "ask_seconds": "Time that questions waited for an answer, all together.",
    }

    def __init__(self, *args: Any) -> None:
        self._in_flight: defaultdict[str, int] = defaultdict(int)
        super().__init__(*args)

    def _hear(self, name: str, event: str, /, **facts: Any) -> None:
        super()._hear(name, event, **facts)
        if event != "asked":
            return
        with self._lock:
            counts = self._newest[name].counts
            counts["asked"] += facts["asked"]
            counts["cached"] += facts["cached"]
            counts["ask_failed"] += facts["failed"]
            counts["ask_seconds"] += facts["seconds"]
            if facts["asked"]:
                self._in_flight[name] = facts["in_flight"]

    def _figures(self) -> Iterator[Metric]:
        yield from super()._figures()
        in_flight = self._gauge("in_flight", "Most questions at the same time, the last time.")
        for name, most in self._in_flight.items():
            in_flight.add_metric([name], most)
        yield in_flight
