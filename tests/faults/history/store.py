"""A history as JSON lines in a folder, to look at afterwards.

One gzipped file for each kind of event; bytes are UTF-8 text where they can be, and other bytes
survive as the escapes of Python's `surrogateescape`. Headers are hexadecimal.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.faults.history.model import (
    Attempt,
    Ends,
    FinalPartition,
    Input,
    Isolation,
    OpenTransaction,
    Outcome,
    Place,
    Poll,
    Probe,
    Reader,
    Record,
)
from tests.faults.history.pool import Pool

if TYPE_CHECKING:
    from tests.faults.history.recorded import History

Row: TypeAlias = list[Any]
"""JSON values in the order of a dataclass's fields."""


@dataclass(frozen=True)
class Folder:
    """Where a history is, and how its files are called."""

    path: Path

    def write(self, name: str, rows: Iterable[Row]) -> None:
        """One line for each row."""
        with gzip.open(self._file(name), "wt", compresslevel=1, encoding="ascii") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")

    def read(self, name: str) -> Iterator[Row]:
        """The rows that were written."""
        with gzip.open(self._file(name), "rt", encoding="ascii") as file:
            for line in file:
                yield json.loads(line)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.jsonl.gz"


def save(history: History, path: Path) -> None:
    """Write a history; `path` is made and should be empty."""
    path.mkdir(parents=True, exist_ok=True)
    folder = Folder(path)
    folder.write("about", [[history.output_topic, history.pipeline]])
    folder.write("inputs", map(_input_row, history.inputs))
    folder.write(
        "attempts", ([a.index, a.at_s, a.batch_id, a.run_id, a.outcome] for a in history.attempts)
    )
    folder.write(
        "readers", ([r.name, r.isolation, _rows(r.goal), r.errors] for r in history.readers)
    )
    for number, reader in enumerate(history.readers):
        folder.write(f"polls-{number}", map(_poll_row, reader.polls))
    folder.write(
        "probes",
        (
            [p.index, p.at_s, [[*place, *_ends_row(ends)] for place, ends in p.ends.items()]]
            for p in history.probes
        ),
    )
    folder.write("final", map(_final_row, history.final.values()))
    for number, partition in enumerate(history.final.values()):
        folder.write(f"final-{number}", map(_record_row, partition.records))
    folder.write(
        "transactions", ([t.transactional_id, t.state, t.places] for t in history.transactions)
    )


def load_names(path: Path) -> tuple[str, str | None]:
    """Output topic and pipeline of the history that was saved there."""
    ((output_topic, pipeline),) = Folder(path).read("about")
    return output_topic, pipeline


def load(history: History, path: Path) -> None:
    """Fill an empty history with the one that was saved there."""
    folder, pool = Folder(path), Pool()
    history.inputs = [_input(row) for row in folder.read("inputs")]
    history.attempts = [
        Attempt(index, at_s, batch_id, run_id, Outcome(outcome))
        for index, at_s, batch_id, run_id, outcome in folder.read("attempts")
    ]
    for number, (name, isolation, goal, errors) in enumerate(folder.read("readers")):
        polls = [_poll(row, pool) for row in folder.read(f"polls-{number}")]
        history.readers.append(Reader(name, Isolation(isolation), polls, _offsets(goal), errors))
    history.probes = [
        Probe(index, at_s, {(topic, partition): Ends(*ends) for topic, partition, *ends in rows})
        for index, at_s, rows in folder.read("probes")
    ]
    for number, (topic, partition, start, stable, high) in enumerate(folder.read("final")):
        records = [pool.share(_record(row)) for row in folder.read(f"final-{number}")]
        history.final[topic, partition] = FinalPartition(
            topic, partition, start, stable, high, records
        )
    history.transactions = [
        OpenTransaction(name, state, tuple((topic, partition) for topic, partition in places))
        for name, state, places in folder.read("transactions")
    ]


def _input_row(one: Input) -> Row:
    return [
        one.index,
        one.at_s,
        one.input_id,
        one.topic,
        _text(one.key),
        _text(one.value),
        one.outcome,
        one.partition,
        one.offset,
    ]


def _input(row: Row) -> Input:
    index, at_s, input_id, topic, key, value, outcome, partition, offset = row
    data = _bytes(value) or b""
    return Input(
        index, at_s, input_id, topic, _bytes(key), data, Outcome(outcome), partition, offset
    )


def _poll_row(poll: Poll) -> Row:
    return [poll.index, poll.at_s, _rows(poll.positions), [_record_row(r) for r in poll.records]]


def _poll(row: Row, pool: Pool) -> Poll:
    index, at_s, positions, records = row
    shared = tuple(pool.share(_record(record)) for record in records)
    return Poll(index, at_s, shared, _offsets(positions))


def _record_row(record: Record) -> Row:
    header = None if record.header is None else record.header.hex()
    return [
        record.topic,
        record.partition,
        record.offset,
        _text(record.key),
        _text(record.value),
        header,
        record.timestamp_ms,
    ]


def _record(row: Row) -> Record:
    topic, partition, offset, key, value, header, timestamp_ms = row
    raw = None if header is None else bytes.fromhex(header)
    return Record(topic, partition, offset, _bytes(key), _bytes(value), raw, timestamp_ms)


def _final_row(end: FinalPartition) -> Row:
    return [end.topic, end.partition, end.log_start, end.last_stable_offset, end.high_watermark]


def _ends_row(ends: Ends) -> Row:
    return [ends.last_stable_offset, ends.high_watermark, ends.leader_epoch]


def _rows(offsets: dict[Place, int]) -> Row:
    return [[*place, offset] for place, offset in offsets.items()]


def _offsets(rows: Row) -> dict[Place, int]:
    return {(topic, partition): offset for topic, partition, offset in rows}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")
