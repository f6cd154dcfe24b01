"""Histories made by hand: of a pipeline without a fault, and what tests change in them."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.faults.history.model import (
    Ends,
    FinalPartition,
    Isolation,
    Place,
    Poll,
    Probe,
    Reader,
    Record,
)
from tests.faults.history.recorded import History
from tests.faults.history.wire import HEADER
from tests.faults.history.writes import Expected, key_and_value

PIPELINE = "views"
OUTPUT = "views-out"
LEDGER = f"onceflow.ledger.{PIPELINE}"
OWNER: Place = (LEDGER, 0)
HEAD: Place = (LEDGER, 1)
PARTITIONS = 2
PLACES = (*((OUTPUT, number) for number in range(PARTITIONS)), OWNER, HEAD)
Fields = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """The records that a driver writes in one batch.

    Args:
        rows: the output partition of each row.
        run: of the driver; a new one claims the ledger first.
        tries: transactions that were aborted before the one that was committed.
    """

    rows: Sequence[int]
    run: str = "run-1"
    tries: int = 0


BATCHES = (
    Batch([0, 0, 1], "run-1"),
    Batch([0, 0, 1, 1], "run-1", tries=1),
    Batch([], "run-2"),
    Batch([0, 1], "run-2"),
)


class Pipeline:
    """Writes batches to logs of lists, and lets two readers and a probe look after each step."""

    def __init__(self) -> None:
        self.history = History(OUTPUT, PIPELINE)
        self._committed = Reader("the committed reader", Isolation.COMMITTED)
        self._uncommitted = Reader("the uncommitted reader", Isolation.UNCOMMITTED)
        self.history.readers = [self._committed, self._uncommitted]
        self._ends = dict.fromkeys(PLACES, 0)
        self._sequence = dict.fromkeys(range(PARTITIONS), 0)
        self._records: dict[Place, list[Record]] = {place: [] for place in PLACES}
        self._index = 0
        self._run = ""
        self._token = 0
        self._batch_id = 0
        self._rows = 0

    def write(self, batch: Batch) -> None:
        """One batch, after a claim if the driver is new."""
        if batch.run != self._run:
            self._run, self._token = batch.run, self._token + 1
            claim = {"v": 1, "token": self._token, "run_id": batch.run}
            self._transaction([(OWNER, b"owner", _json(claim), None)])
        rows = [
            (OUTPUT, number, f"k{self._rows + i}", f"v{self._rows + i}")
            for i, number in enumerate(batch.rows)
        ]
        for _ in range(batch.tries):
            self._transaction(self._numbered(rows)[0], is_committed=False)
        records, counts = self._numbered(rows)
        before, self._sequence = self._sequence, counts
        head = {
            "v": 1,
            "generation": 1,
            "batch_id": self._batch_id,
            "token": self._token,
            "run_id": batch.run,
            "sources": {"s": {"in": {"0": [self._batch_id * 10, self._batch_id * 10 + 10]}}},
            "sink": {"sequence": {str(p): [before[p] + 1, counts[p]] for p in counts}},
            "note": "",
        }
        self._transaction([*records, (HEAD, b"head", _json(head), None)])
        self._batch_id += 1
        self._rows += len(rows)

    def quiesce(self) -> History:
        """The history, complete."""
        for place, end in self._ends.items():
            self.history.final[place] = FinalPartition(*place, 0, end, end, self._records[place])
        for reader in self.history.readers:
            reader.goal = dict(self._ends)
        return self.history

    def _numbered(
        self, rows: list[tuple[str, int, str, str]]
    ) -> tuple[list[tuple[Place, bytes, bytes, bytes | None]], dict[int, int]]:
        sequence, records = dict(self._sequence), []
        for topic, partition, key, value in rows:
            sequence[partition] += 1
            header = header_bytes(batch_id=self._batch_id, sequence=sequence[partition])
            records.append(((topic, partition), key.encode(), value.encode(), header))
        return [((t, p), k, v, h) for (t, p), k, v, h in records], sequence

    def _transaction(
        self,
        sends: Sequence[tuple[Place, bytes, bytes, bytes | None]],
        *,
        is_committed: bool = True,
    ) -> None:
        stable = dict(self._ends)
        written = []
        for place, key, value, header in sends:
            written.append(Record(*place, self._ends[place], key, value, header, 1000))
            self._ends[place] += 1
        self._poll(self._uncommitted, written)
        self._probe({place: Ends(stable[place], self._ends[place], 1) for place in PLACES})
        for place in {record.place for record in written}:
            self._ends[place] += 1  # the marker
        if is_committed:
            for record in written:
                self._records[record.place].append(record)
        self._poll(self._committed, written if is_committed else [])
        self._poll(self._uncommitted, [])
        self._probe({place: Ends(end, end, 1) for place, end in self._ends.items()})

    def _poll(self, reader: Reader, records: list[Record]) -> None:
        self._index += 1
        reader.polls.append(Poll(self._index, float(self._index), tuple(records), dict(self._ends)))

    def _probe(self, ends: dict[Place, Ends]) -> None:
        self._index += 1
        self.history.probes.append(Probe(self._index, float(self._index), ends))


def made(batches: Sequence[Batch] = BATCHES) -> History:
    """A history without an anomaly."""
    pipeline = Pipeline()
    for batch in batches:
        pipeline.write(batch)
    return pipeline.quiesce()


def expected_of(history: History) -> Expected:
    """An oracle that wants exactly what is there."""
    return Expected(
        Counter(key_and_value(record) for end in history.outputs() for record in end.records)
    )


def rewrite(history: History, change: Callable[[Record], Record | None]) -> None:
    """Change each record for everybody who sees it; None takes it away."""

    def changed(records: Sequence[Record]) -> list[Record]:
        return [new for new in map(change, records) if new is not None]

    for end in history.final.values():
        end.records = changed(end.records)
    for reader in history.readers:
        reader.polls = [replace(p, records=tuple(changed(p.records))) for p in reader.polls]


def rewrite_head(history: History, batch_id: int, change: Callable[[Fields], object]) -> None:
    """Change the head of a batch for everybody who sees it."""

    def changed(record: Record) -> Record:
        if record.place != HEAD or record.value is None:
            return record
        fields = json.loads(record.value)
        if fields["batch_id"] == batch_id:
            change(fields)
        return replace(record, value=_json(fields))

    rewrite(history, changed)


def header_bytes(
    *, batch_id: int, sequence: int, pipeline: str = PIPELINE, lineage: int = 0
) -> bytes:
    """A header of version 1 and generation 1."""
    return HEADER.pack(1, 0, lineage, zlib.crc32(pipeline.encode()), 1, 7, batch_id, sequence)


def _json(fields: Fields) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
