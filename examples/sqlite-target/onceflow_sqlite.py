"""Writes a table of SQLite: a small target that keeps its position next to the rows.

Rows and positions are one transaction. SQLite lets one transaction write at a time, so a claim that
is compared inside of one is the newest when the rows are committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from onceflow.columns import Columns
from onceflow.contracts.connector import Place
from onceflow.contracts.target import Batch, Claim, Held, Mark, Values, is_unwritten
from onceflow.contracts.target_block import TargetBlock, TargetSpec
from onceflow.errors import ConfigError, Fault, RecordError, RetriableError
from onceflow.protocol.guarantee import Guarantee, Level

BUSY_TIMEOUT_S = 10.0
TYPES = ("bigint", "boolean", "double", "float", "int", "smallint", "string", "tinyint")
"""Those that SQLite keeps as they are."""
POSITIONS = """\
CREATE TABLE IF NOT EXISTS onceflow_positions (
  delivery TEXT, topic TEXT, number INTEGER, claim_epoch INTEGER, next_offset INTEGER, state TEXT,
  PRIMARY KEY (delivery, topic, number)
)"""


class SqliteBlock(TargetBlock):
    """A table in a file of SQLite. Rows and position are written in one transaction."""

    file: str = Field(min_length=1, description="The database, relative to the delivery file.")
    table: str = Field(
        pattern="^[A-Za-z_][A-Za-z0-9_]*$", description="The table. Created if it does not exist."
    )

    def target(self, spec: TargetSpec) -> SqliteTarget:
        return SqliteTarget(self, spec)

    def faults(self, columns: Columns) -> Iterator[tuple[str, Fault]]:
        for name, kind in columns.by_name.items():
            if kind.ddl not in TYPES:
                expected = ", ".join(each.upper() for each in TYPES)
                what = f"the column `{name}` has a type that this target does not keep"
                yield "table", Fault(what, expected=expected)

    def guarantee(self) -> Guarantee:
        return Guarantee(Level.EXACTLY_ONCE, f"from the topic to the table {self.table}")

    def describe(self) -> str:
        return f"SQLite, table {self.table}"


class SqliteTarget:
    """Implements `onceflow.contracts.target.Target`."""

    def __init__(self, block: SqliteBlock, spec: TargetSpec) -> None:
        self._table = block.table
        self._file = spec.folder / block.file
        self._delivery = spec.delivery
        self._columns = spec.columns
        self._opened: sqlite3.Connection | None = None

    def check(self) -> None:
        with self._transaction() as connection:
            columns = ", ".join(
                f'"{name}"{" NOT NULL" * (name in self._columns.required)}'
                for name in self._columns.names
            )
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{self._table}" ({columns})')
            found = [row[1] for row in connection.execute(f'PRAGMA table_info("{self._table}")')]
        if missing := set(self._columns.names) - {*found}:
            what = "the table lacks columns"
            raise ConfigError(what, subject=self._table, found=", ".join(sorted(missing)))

    def probe(self) -> None:
        with self._transaction() as connection:
            connection.execute("SELECT 1")

    def claim(self, place: Place) -> Claim:
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO onceflow_positions VALUES (?, ?, ?, 1, NULL, NULL)"
                " ON CONFLICT DO UPDATE SET claim_epoch = claim_epoch + 1",
                (self._delivery, *place),
            )
            [claim_epoch, offset, state] = self._held(connection, place)
        return Claim(place, claim_epoch, None if offset is None else Mark(offset, state))

    def positions(self) -> Mapping[Place, Mark]:
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT topic, number, next_offset, state FROM onceflow_positions"
                " WHERE delivery = ? AND next_offset IS NOT NULL",
                (self._delivery,),
            ).fetchall()
        return {(topic, n): Mark(offset, state) for topic, n, offset, state in rows}

    def write(self, batch: Batch) -> None:
        with self._transaction() as connection:
            places = [move.claim.place for move in batch.moves]
            held = {place: Held(*self._held(connection, place)[:2]) for place in places}
            if not is_unwritten(batch.moves, held):
                return
            self._insert(connection, batch.rows)
            for move in batch.moves:
                connection.execute(
                    "UPDATE onceflow_positions SET next_offset = ?, state = ?"
                    " WHERE delivery = ? AND topic = ? AND number = ?",
                    (move.to.offset, move.to.state, self._delivery, *move.claim.place),
                )

    def refused(self, batch: Batch) -> Mapping[int, str]:
        found: dict[int, str] = {}
        for n, row in enumerate(batch.rows):
            try:
                with self._transaction() as connection:
                    self._insert(connection, [row])
                    connection.rollback()
            except RecordError as error:
                found[n] = error.found
        return found

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _insert(self, connection: sqlite3.Connection, rows: Sequence[Values]) -> None:
        names = ", ".join(f'"{name}"' for name in self._columns.names)
        marks = ", ".join("?" for _ in self._columns.names)
        # The names have been checked, and values are not a part of the statement.
        insert = f'INSERT INTO "{self._table}" ({names}) VALUES ({marks})'  # noqa: S608
        connection.executemany(insert, rows)

    def _held(self, connection: sqlite3.Connection, place: Place) -> tuple[Any, ...]:
        """Claim, offset and state; claim 0 is older than any."""
        row = connection.execute(
            "SELECT claim_epoch, next_offset, state FROM onceflow_positions"
            " WHERE delivery = ? AND topic = ? AND number = ?",
            (self._delivery, *place),
        ).fetchone()
        return row or (0, None, None)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One that may write, committed at the end of the block, and rolled back after an error."""
        connection = self._opened or self._open()
        try:
            # Now, and not at the first write: what is read must not change before.
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            self.close()
            what = "the table refuses a row"
            raise RecordError(what, subject=self._table, found=str(error)) from error
        except sqlite3.Error as error:
            self.close()
            what = "the database cannot be used now"
            raise RetriableError(what, subject=str(self._file), found=str(error)) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        if not self._file.parent.is_dir():
            what = "there is no folder for the database"
            raise ConfigError(what, subject=str(self._file.parent))
        try:
            opened = sqlite3.connect(self._file, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            opened.execute("PRAGMA synchronous = FULL")
            opened.execute(POSITIONS)
        except sqlite3.Error as error:
            what = "the database cannot be opened"
            raise RetriableError(what, subject=str(self._file), found=str(error)) from error
        self._opened = opened
        return opened
