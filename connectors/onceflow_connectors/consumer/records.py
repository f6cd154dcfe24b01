"""Partitions, and positions that can be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Partition: TypeAlias = tuple[str, int]
"""Topic and partition number."""


def name_of(partition: Partition) -> str:
    """The partition as messages show it."""
    topic, number = partition
    return f"{topic}[{number}]"


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a reader in one partition. Store all four fields, or none.

    Args:
        offset: next offset to read.
        state: of the filter, in ASCII, at most `filter.STATE_BYTES_MAX` long; empty only if
            another program committed the offset.
    """

    topic: str
    partition: int
    offset: int
    state: str
