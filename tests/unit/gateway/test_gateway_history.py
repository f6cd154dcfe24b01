"""The last hour of a gateway: samples of its metrics, as charts and `why-stuck` show them."""

from __future__ import annotations

import threading
from collections import Counter

from onceflow.gateway.history import RECENT, GatewayHistory, Totals, sampling
from onceflow.gateway.metrics import GatewayMetrics
from onceflow.serve.hour import INTERVAL_S
from tests.support.clock import ManualClock

FIGURES = {"slots": 2.0, "keys": 5.0, "in_flight_bytes": 10.0}


def test_samples_become_rates_times_and_gauges() -> None:
    clock = ManualClock()
    history = GatewayHistory(clock)
    history.take(Totals(Counter({202: 3, 401: 1, 503: 1}), 30, 0.5, FIGURES))
    clock.sleep(INTERVAL_S)
    history.take(Totals(Counter({202: 3, 401: 1, 503: 1}), 30, 0.5, FIGURES))
    clock.sleep(INTERVAL_S)
    told = history.fields()
    assert told["records_per_s"] == [6.0, 0.0]
    assert (told["posts_per_s"], told["refused_per_s"]) == ([0.6, 0.0], [0.2, 0.0])
    assert told["failed_per_s"] == [0.2, 0.0]
    assert told["answer_ms"] == [100.0, None]
    assert told["keys"] == [5.0, 5.0]


def test_refusals_are_forgotten_after_some_minutes() -> None:
    history = GatewayHistory(ManualClock())
    posts = Counter({202: 3, 401: 2})
    history.take(Totals(posts, 0, 0.0, {}))
    for _ in range(RECENT - 1):
        history.take(Totals(posts, 0, 0.0, {}))
    assert history.refused() == {401: 2}
    history.take(Totals(posts, 0, 0.0, {}))
    assert history.refused() == {}


def test_what_happens_is_marked() -> None:
    history = GatewayHistory(ManualClock())
    history("running", port=1)
    history("slot_taken", slot=1, keys=2_000)
    history("slot_left", slot=1)
    history("failed", error="ConfigError", text="no topic")
    marks = [(mark["what"], mark["text"]) for mark in history.fields()["marks"]]
    assert marks == [
        ("started", ""),
        ("slot taken", "slot 1, 2,000 keys"),
        ("slot left", "slot 1"),
        ("failed", "ConfigError: no topic"),
    ]


def test_totals_are_those_of_the_metrics_and_samples_are_taken() -> None:
    metrics = GatewayMetrics("door", lambda: (), {})
    metrics.answered(202, 5, 0.25)
    metrics.answered(401, 0, 0.25)
    metrics.figures = lambda: FIGURES
    assert metrics.totals() == Totals(Counter({202: 1, 401: 1}), 5, 0.5, FIGURES)
    taken = threading.Event()
    with sampling(taken.set, 0.001):
        assert taken.wait(10)
