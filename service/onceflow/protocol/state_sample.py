"""A sample of the query's state, in `head`: whether the state is there after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateSample:
    """A digest of one partition of an operator's state, as of a batch.

    Args:
        batch_id: was done when the batch of `head` was written.
        digest: sum of a 64-bit hash of each row, so that their order does not count.
    """

    batch_id: int
    operator: int
    partition: int
    rows: int
    digest: str

    def __str__(self) -> str:
        return f"{self.rows} rows with digest {self.digest}"

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StateSample:
        """Inverse of `asdict`. Raises TypeError if a field is not as it should be."""
        found = cls(**value)
        numbers = (found.batch_id, found.operator, found.partition, found.rows)
        if not all(type(each) is int for each in numbers) or not isinstance(found.digest, str):
            raise TypeError(value)
        return found
