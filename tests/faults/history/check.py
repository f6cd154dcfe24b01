"""All checks of a history in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.faults.history.anomaly import Anomaly
from tests.faults.history.ledger import (
    hung_transaction,
    lagging_stable_offset,
    ledger_mismatch,
    two_owners,
)
from tests.faults.history.reads import (
    aborted_read,
    dirty_read,
    inconsistent_offsets,
    reader_disagreement,
)
from tests.faults.history.recorded import History
from tests.faults.history.writes import (
    Expected,
    duplicate,
    lost_write,
    nonmonotonic_sequence,
    sequence_hole,
    torn_batch,
)

AGAINST_ORACLE: tuple[Callable[[History, Expected], list[Anomaly]], ...] = (lost_write, duplicate)
ALONE: tuple[Callable[[History], list[Anomaly]], ...] = (
    aborted_read,
    dirty_read,
    inconsistent_offsets,
    reader_disagreement,
    nonmonotonic_sequence,
    sequence_hole,
    torn_batch,
    ledger_mismatch,
    two_owners,
    hung_transaction,
    lagging_stable_offset,
)
SHOWN = 20
"""Anomalies that a failure prints: one cause often shows a thousand times."""


def check_all(history: History, expected: Expected) -> list[Anomaly]:
    """Every anomaly of every kind."""
    return [
        *(anomaly for check in AGAINST_ORACLE for anomaly in check(history, expected)),
        *(anomaly for check in ALONE for anomaly in check(history)),
    ]


def assert_clean(history: History, expected: Expected) -> None:
    """Fail with the totals by name and the first anomalies of each.

    Raises:
        AssertionError: there is one.
    """
    anomalies = check_all(history, expected)
    if not anomalies:
        return
    totals = Counter(anomaly.name for anomaly in anomalies)
    summary = ", ".join(f"{count} {name}" for name, count in totals.items())
    each = max(1, SHOWN // len(totals))
    shown = [
        str(anomaly)
        for name in totals
        for anomaly in [a for a in anomalies if a.name == name][:each]
    ]
    raise AssertionError(
        f"{len(anomalies)} anomalies ({summary}), of which {len(shown)} are:\n" + "\n".join(shown)
    )
