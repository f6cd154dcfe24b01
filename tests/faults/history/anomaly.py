"""The report of a check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Anomaly:
    """One piece of evidence.

    Args:
        name: of the check that found it, as in Jepsen.
        text: where, what was expected and what was found.
    """

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"
