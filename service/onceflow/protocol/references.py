"""Names the rows that a reference has in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ReferenceVersion:
    """The rows of a reference in a batch.

    Args:
        of: of a file, the SHA-256 of its content; of a topic, the next offset of each partition,
            such as `0:17,1:20`.
        rows: SHA-256 of what is kept of them with the checkpoint.
    """

    of: str
    rows: str


def versions_to_json(versions: Mapping[str, ReferenceVersion]) -> dict[str, Any]:
    """Versions by name as JSON values."""
    return {name: asdict(version) for name, version in versions.items()}


def versions_from_json(value: Mapping[str, Mapping[str, Any]]) -> Mapping[str, ReferenceVersion]:
    """Versions by name, from an entry or from what an offset says.

    Raises:
        KeyError, TypeError, AttributeError: something is not as it should be.
    """
    found = {name: ReferenceVersion(each["of"], each["rows"]) for name, each in value.items()}
    if not all(isinstance(text, str) for each in found.values() for text in asdict(each).values()):
        raise TypeError(value)
    return found
