"""One object for each record, however many readers saw it."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict

from tests.faults.history.model import Place, Record


class Pool:
    """Records of all readers, by partition and offset. Safe to use from several threads.

    An hour of output is held once and not once for each reader.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[Place, list[Record]] = defaultdict(list)

    def share(self, record: Record) -> Record:
        """The equal record that is known already, or else this one, known from now on."""
        with self._lock:
            known = self._find(record)
            if known is None:
                records = self._records[record.place]
                if not records or records[-1].offset < record.offset:
                    records.append(record)
            return record if known != record else known

    def _find(self, record: Record) -> Record | None:
        records = self._records[record.place]
        if not records or records[-1].offset < record.offset:
            return None
        index = bisect_left(records, record.offset, key=_offset)
        return records[index] if records[index].offset == record.offset else None


def _offset(record: Record) -> int:
    return record.offset
