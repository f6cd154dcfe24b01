"""A row of the fault matrix, and what most rows demand."""

from __future__ import annotations

from dataclasses import dataclass

ONCE = "every row of the oracle once, the ledger and the sequences agree, nothing left open"
"""What is demanded of almost every row."""
REFUSED = "refused or halted by name, nothing written"


@dataclass(frozen=True)
class Row:
    """One kind of fault.

    Args:
        row_id: as `--only` takes it.
        fault: what happens.
        demanded: what has to come of it.
        tests: functions, as `FILE::NAME` below the root of the repository.
    """

    row_id: str
    fault: str
    demanded: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Absent:
    """A row that no test plays.

    Args:
        reason: why it cannot occur here, or where else it is shown.
    """

    row_id: str
    fault: str
    reason: str
