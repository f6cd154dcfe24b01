"""A table in PostgreSQL as a target: rows and positions in one transaction, fenced by claims.

A batch is copied into a temporary table first, where it holds no lock that another instance needs:
a process that is frozen in the middle of it keeps no other waiting. Then the positions are locked
and compared, the rows are merged, the positions are moved, and all of it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection, Cursor
from psycopg.conninfo import conninfo_to_dict

from onceflow.contracts.connector import Place
from onceflow.contracts.target import (
    Batch,
    Claim,
    Held,
    Mark,
    Move,
    Values,
    is_unwritten,
)
from onceflow.contracts.target_block import TargetSpec
from onceflow.crashpoints import CrashPoint, reach
from onceflow.errors import ConfigError, RecordError
from onceflow_connectors.postgres.block import PostgresBlock
from onceflow_connectors.postgres.failures import connection_failure, failure
from onceflow_connectors.postgres.statements import Statements, positions_name, statements
from onceflow_connectors.postgres.table import Table, describe_table, table_faults

MAX_DSN_BYTES = 16 * 1024
_CONNECTION: Mapping[str, str] = {
    # A server that is gone is noticed within half a minute, also in the middle of a transaction.
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Settings of a connection, unless `dsn_file` has others. All are off or hours long by default."""
_SESSION: Mapping[str, str] = {
    # A successor waits this long for our lock, and then tries again.
    "lock_timeout": "10s",
    # After this long, the server ends a transaction of a process that is frozen.
    "idle_in_transaction_session_timeout": "10s",
    "statement_timeout": "300s",
}


@dataclass
class _Open:
    """A connection and what it writes to."""

    connection: Connection
    table: Table
    sql: Statements


class PostgresTarget:
    """Implements `contracts.target.Target`."""

    def __init__(self, block: PostgresBlock, spec: TargetSpec) -> None:
        self._block = block
        self._spec = spec
        self._opened: _Open | None = None

    def check(self) -> None:
        self.close()
        self._open()

    def probe(self) -> None:
        with self._reporting("the server does not answer") as opened:
            opened.connection.execute("SELECT 1")
            opened.connection.rollback()

    def claim(self, place: Place) -> Claim:
        with self._reporting("the position cannot be claimed") as opened:
            values = [self._spec.delivery, *place, opened.table.oid]
            found = opened.connection.execute(opened.sql.claim, values).fetchone()
            opened.connection.commit()
        if found is None:
            raise ConfigError(
                "this delivery has written to another table before",
                subject=f"{self._spec.delivery}, table {opened.table.full_name}",
                expected="the table in which its earlier rows are",
                found="one that was created later, or another one",
                then="nothing was written; to begin again in this table, give the delivery another"
                f" name, or delete its rows from {positions_name(opened.table)}",
            )
        claim_epoch, offset, state = found
        return Claim(place, claim_epoch, None if offset is None else Mark(offset, state))

    def positions(self) -> Mapping[Place, Mark]:
        with self._reporting("the positions cannot be read") as opened:
            cursor = opened.connection.execute(opened.sql.positions, [self._spec.delivery])
            found = cursor.fetchall()
            opened.connection.rollback()
        return {(topic, n): Mark(offset, state) for topic, n, offset, state in found}

    def write(self, batch: Batch) -> None:
        with self._reporting("a batch was not written") as opened:
            with opened.connection.cursor() as cursor:
                _stage(cursor, opened.sql, batch.rows, batch.deleted)
                reach(CrashPoint.MID_PRODUCE)
                held = _lock(cursor, opened.sql, self._spec.delivery, batch.moves)
                if not is_unwritten(batch.moves, held):
                    opened.connection.rollback()
                    return
                _merge(cursor, opened.sql, has_deletions=bool(batch.deleted))
                reach(CrashPoint.AFTER_EFFECT)
                _move(cursor, opened.sql, self._spec.delivery, batch.moves)
            reach(CrashPoint.BEFORE_COMMIT)
        with self._reporting("a commit was not answered", in_commit=True) as opened:
            opened.connection.commit()
        reach(CrashPoint.AFTER_COMMIT)

    def refused(self, batch: Batch) -> Mapping[int, str]:
        found: dict[int, str] = {}
        with self._reporting("rejected rows cannot be found") as opened:
            connection = opened.connection
            with connection.transaction(force_rollback=True), connection.cursor() as cursor:
                self._search(cursor, opened.sql, batch, range(len(batch.rows)), found)
        return found

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(psycopg.Error):
                opened.connection.close()

    def _search(
        self,
        cursor: Cursor,
        sql: Statements,
        batch: Batch,
        part: range,
        found: dict[int, str],
    ) -> None:
        """Write a part, or halves of it. Parts that are taken stay until the end of the search.

        So two rows that are refused only together are found, too: the second one.
        """
        rows = [batch.rows[n] for n in part]
        deleted = frozenset(n - part.start for n in part if n in batch.deleted)
        try:
            with cursor.connection.transaction():
                cursor.execute(sql.clear_stage)
                _stage(cursor, sql, rows, deleted)
                _merge(cursor, sql, has_deletions=bool(deleted))
        except psycopg.Error as error:
            refusal = failure(error, "a row was refused", self._subject, in_commit=False)
            if not isinstance(refusal, RecordError):
                raise
            if len(part) == 1:
                found[part.start] = refusal.found
                return
            middle = part.start + len(part) // 2
            self._search(cursor, sql, batch, range(part.start, middle), found)
            self._search(cursor, sql, batch, range(middle, part.stop), found)

    @property
    def _subject(self) -> str:
        return f"PostgreSQL, table {self._block.table}"

    @contextmanager
    def _reporting(self, what: str, *, in_commit: bool = False) -> Iterator[_Open]:
        """Lend the connection, and turn errors into ours. After any, the connection is another."""
        opened = self._opened or self._open()
        try:
            yield opened
        except psycopg.Error as error:
            self.close()
            raise failure(error, what, self._subject, in_commit=in_commit) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> _Open:
        connection = self._connected()
        try:
            opened = self._prepared(connection)
        except psycopg.Error as error:
            connection.close()
            what = "the table cannot be looked at"
            raise failure(error, what, self._subject, in_commit=False) from error
        except BaseException:
            connection.close()
            raise
        self._opened = opened
        return opened

    def _connected(self) -> Connection:
        given = _connection_settings(self._spec.folder / self._block.dsn_file)
        name = f"onceflow delivery {self._spec.delivery}"
        settings: dict[str, Any] = {**_CONNECTION, "application_name": name, **given}
        try:
            return psycopg.connect(**settings)
        except psycopg.Error as error:
            # Without the cause: a traceback of the driver shows what it was called with.
            raise connection_failure(error, self._subject) from None

    def _prepared(self, connection: Connection) -> _Open:
        with connection.cursor() as cursor:
            for name, value in _SESSION.items():
                cursor.execute("SELECT set_config(%s, %s, false)", [name, value])
            block, columns = self._block, self._spec.columns
            table = describe_table(cursor, block.table)
            if table is None:
                raise ConfigError(
                    "the table does not exist",
                    subject=self._subject,
                    then="nothing was written; create it, or correct `table`",
                )
            if faults := tuple(table_faults(table, block, columns)):
                what = "the table does not fit the delivery"
                raise ConfigError(what, subject=self._subject, faults=faults)
            sql = statements(table, block, columns)
            self._create_positions(cursor, table, sql)
            cursor.execute(sql.create_stage)
        connection.commit()
        return _Open(connection, table, sql)

    def _create_positions(self, cursor: Cursor, table: Table, sql: Statements) -> None:
        name = positions_name(table)
        exists = "SELECT to_regclass(%s) IS NOT NULL"
        quoted = f'"{table.schema}"."{name.rpartition(".")[2]}"'
        if cursor.execute(exists, [quoted]).fetchone() == (True,):
            return
        try:
            cursor.execute(sql.create_positions)
        except psycopg.errors.InsufficientPrivilege as error:
            statement = " ".join(sql.create_positions.as_string(cursor).split())
            raise ConfigError(
                "the table of positions cannot be created",
                subject=name,
                found=error.diag.message_primary or "",
                then=f"nothing was written; have an administrator run `{statement}` and grant"
                " SELECT, INSERT and UPDATE on it",
            ) from error


def _connection_settings(file: Path) -> Mapping[str, Any]:
    """Read the connection string. No error shows any of it."""
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_DSN_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        found = (isinstance(error, OSError) and error.strerror) or "bytes that are not UTF-8"
        raise ConfigError("cannot read `dsn_file`", subject=str(file), found=found) from None
    try:
        return conninfo_to_dict(text)
    except psycopg.Error:
        raise ConfigError(
            "`dsn_file` does not hold a connection string",
            subject=str(file),
            expected="`postgresql://user:password@host:port/database`, or `host=... dbname=...`",
        ) from None


def _stage(
    cursor: Cursor, sql: Statements, rows: Sequence[Values], deleted: frozenset[int]
) -> None:
    with cursor.copy(sql.copy) as copy:
        copy.set_types(sql.stage_types)
        for ordinal, row in enumerate(rows):
            copy.write_row((ordinal, ordinal in deleted, *row))


def _lock(
    cursor: Cursor, sql: Statements, delivery: str, moves: Sequence[Move]
) -> Mapping[Place, Held]:
    topics = [move.claim.place[0] for move in moves]
    partitions = [move.claim.place[1] for move in moves]
    cursor.execute(sql.lock, [topics, partitions, delivery])
    return {(topic, n): Held(claimed, offset) for topic, n, claimed, offset in cursor.fetchall()}


def _merge(cursor: Cursor, sql: Statements, *, has_deletions: bool) -> None:
    if has_deletions:
        cursor.execute(sql.delete)
        cursor.execute(sql.write_after_deletions)
    else:
        cursor.execute(sql.write)
    # Constraints that are deferred would refuse a row only at the commit.
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def _move(cursor: Cursor, sql: Statements, delivery: str, moves: Sequence[Move]) -> None:
    topics = [move.claim.place[0] for move in moves]
    partitions = [move.claim.place[1] for move in moves]
    offsets = [move.to.offset for move in moves]
    states = [move.to.state for move in moves]
    cursor.execute(sql.move, [topics, partitions, offsets, states, delivery])
