"""The keys that one slot remembers. Pure, but for the memory that it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass
class Memory:
    """Remembered keys, oldest first, each with the value of its record.

    Args:
        for_ms: how long a key is remembered.
        at_most: keys that new ones may make it grow to. More may be read at a start: none is
            forgotten early.
    """

    for_ms: int
    at_most: int
    _values: dict[bytes, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._values)

    def find(self, hashed: bytes) -> bytes | None:
        """Return the value of a key; None if it is new."""
        return self._values.get(hashed)

    def add(self, hashed: bytes, value: bytes) -> None:
        """Remember a key."""
        # One that was forgotten here, and not yet in the topic, is as old as it is there.
        self._values.pop(hashed, None)
        self._values[hashed] = value

    def room(self, now_ms: int) -> int:
        """Forget what is old; return how many keys there is room for."""
        while self._values:
            oldest = next(iter(self._values))
            if self._at_ms(oldest) + self.for_ms > now_ms:
                break
            del self._values[oldest]
        return max(0, self.at_most - len(self._values))

    def full_until_ms(self) -> int:
        """When the oldest key is forgotten."""
        return self._at_ms(next(iter(self._values))) + self.for_ms if self._values else 0

    def _at_ms(self, hashed: bytes) -> int:
        return int(json.loads(self._values[hashed])["at"])
