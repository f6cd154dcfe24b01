"""The target `postgres` on a real server, without a broker: what it writes, refuses and fences."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from onceflow.columns import parse_columns
from onceflow.contracts.target import Batch, Claim, Mark, Move, Target, Values
from onceflow.contracts.target_block import TargetSpec
from onceflow.errors import (
    AbortableError,
    ConfigError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow_connectors.postgres.block import PostgresBlock
from tests.support.eventually import eventually
from tests.support.sites.cut_proxy import CutProxy, cut_proxy
from tests.support.sites.postgres import PASSWORD, Postgres, running_postgres

DDL = "page STRING, views BIGINT, version BIGINT"
TABLE = "CREATE TABLE {} (page text PRIMARY KEY, views int8, version int8)"
UPSERT: Mapping[str, Any] = {"mode": "upsert", "key": ["page"], "revision": "version"}
PLACE = ("views", 0)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def proxy(server: Postgres) -> Iterator[CutProxy]:
    with cut_proxy(server.port) as proxy:
        yield proxy


@dataclass
class Bench:
    """A delivery of its own, and its table."""

    server: Postgres
    folder: Path
    name: str
    port: int

    def create(self, statement: str = TABLE) -> None:
        with psycopg.connect(self.server.dsn) as connection:
            connection.execute(SQL(statement).format(Identifier(self.name)))

    def target(self, ddl: str = DDL, **block: Any) -> Target:
        file = self.folder / "dsn"
        file.write_text(self.server.dsn_at(self.port))
        given = {"dsn_file": "dsn", "table": self.name, **(block or UPSERT)}
        spec = TargetSpec(self.name, parse_columns(ddl), self.folder)
        return PostgresBlock.model_validate(given).target(spec)

    def rows(self) -> list[Any]:
        with psycopg.connect(self.server.dsn) as connection:
            statement = SQL("SELECT * FROM {} ORDER BY 1, 2").format(Identifier(self.name))
            return connection.execute(statement).fetchall()


@pytest.fixture
def bench(server: Postgres, proxy: CutProxy, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path, f"t{uuid.uuid4().hex[:12]}", proxy.port)


def batch(claim: Claim, rows: Sequence[Values], *, deleted: Sequence[int] = ()) -> Batch:
    start = claim.mark.offset if claim.mark else 0
    move = Move(claim, Mark(start + len(rows), f"after {start + len(rows)}"))
    return Batch((), rows, [move], frozenset(deleted))


def after(written: Batch) -> Claim:
    [move] = written.moves
    return replace(move.claim, mark=move.to)


@pytest.mark.parametrize("end", range(1, 7))
def test_the_newest_revision_stays_wherever_batches_end(bench: Bench, end: int) -> None:
    bench.create()
    rows = [("a", 1, 1), ("b", 1, 1), ("a", 3, 3), ("a", 2, 2), ("a", 33, 3), ("c", 1, 1)]
    with closing(bench.target()) as target:
        target.check()
        claim = target.claim(PLACE)
        assert claim == Claim(PLACE, 1, None)
        for part in (rows[:end], rows[end:]):
            written = batch(claim, part)
            target.write(written)
            claim = after(written)
        assert bench.rows() == [("a", 3, 3), ("b", 1, 1), ("c", 1, 1)]
        assert target.positions() == {PLACE: Mark(6, "after 6")}
        assert target.claim(PLACE) == Claim(PLACE, 2, Mark(6, "after 6"))


def test_without_a_revision_the_later_record_stays(bench: Bench) -> None:
    bench.create()
    with closing(bench.target(mode="upsert", key="page")) as target:
        target.write(batch(target.claim(PLACE), [("a", 2, 9), ("a", 1, 1), ("b", 1, 1)]))
    assert bench.rows() == [("a", 1, 1), ("b", 1, 1)]


def test_appended_rows_are_those_of_the_records(bench: Bench) -> None:
    bench.create("CREATE TABLE {} (page text, views int8, version numeric)")
    with closing(bench.target(mode="append")) as target:
        written = batch(target.claim(PLACE), [("a", 1, 1), ("a", 1, 1), (None, None, None)])
        target.write(written)
        target.write(written)
    assert bench.rows() == [("a", 1, 1), ("a", 1, 1), (None, None, None)]


def test_a_record_without_a_value_deletes_what_was_before_it(bench: Bench) -> None:
    bench.create()
    with closing(bench.target(**UPSERT, deletes=True)) as target:
        first = batch(target.claim(PLACE), [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)])
        target.write(first)
        gone = [("a", None, None), ("b", 5, 5), ("b", None, None), ("b", 2, 2)]
        target.write(batch(after(first), gone, deleted=[0, 2]))
    assert bench.rows() == [("b", 2, 2), ("c", 1, 1)]


def test_values_arrive_as_they_are(bench: Bench) -> None:
    bench.create(
        "CREATE TABLE {} (page text PRIMARY KEY, u uuid, d numeric(12,2), at timestamptz,"
        " tags jsonb, x bytea, f float8, more varchar(3))"
    )
    ddl = (
        "page STRING, u STRING, d DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, x BINARY,"
        " f FLOAT, more STRING"
    )
    with closing(bench.target(ddl, mode="upsert", key="page")) as target:
        row = ("ä", str(uuid.UUID(int=1)), None, None, '["x"]', b"\x00", 0.5, "abc")
        target.write(batch(target.claim(PLACE), [row]))
    assert bench.rows() == [("ä", uuid.UUID(int=1), None, None, ["x"], b"\x00", 0.5, "abc")]


def test_rows_that_are_refused_are_found_and_nothing_is_written(bench: Bench) -> None:
    bench.create(
        "CREATE TABLE {} (page varchar(3) PRIMARY KEY, views int8 UNIQUE DEFERRABLE INITIALLY"
        " DEFERRED, version int8 CHECK (version < 100))"
    )
    rows = [("a", 1, 1), ("long", 2, 2), ("b", 1, 1), ("c", 3, 100), ("d\0", 4, 4), ("e", 5, 5)]
    with closing(bench.target()) as target:
        claim = target.claim(PLACE)
        with pytest.raises(RecordError):
            target.write(batch(claim, rows))
        found = target.refused(batch(claim, rows))
        assert {n: text.split()[0] for n, text in found.items()} == {
            1: "22001",
            2: "23505",
            3: "23514",
            4: "22021",
        }
        assert bench.rows() == []
        assert target.positions() == {}
        target.write(batch(claim, [row for n, row in enumerate(rows) if n not in found]))
    assert bench.rows() == [("a", 1, 1), ("e", 5, 5)]


def test_an_older_claim_writes_nothing(bench: Bench) -> None:
    bench.create()
    with closing(bench.target()) as zombie, closing(bench.target()) as successor:
        old = zombie.claim(PLACE)
        new = successor.claim(PLACE)
        with pytest.raises(AbortableError, match="expected claim 1; found claim 2"):
            zombie.write(batch(old, [("zombie", 1, 1)]))
        written = batch(new, [("a", 1, 1)])
        successor.write(written)
        with pytest.raises(AbortableError):
            zombie.write(batch(old, [("zombie", 1, 1)]))
    assert bench.rows() == [("a", 1, 1)]


def test_a_connection_cut_in_mid_transaction_leaves_nothing(bench: Bench, proxy: CutProxy) -> None:
    bench.create()
    with closing(bench.target()) as target:
        written = batch(target.claim(PLACE), [("a", 1, 1)])
        for mark in (b"COPY", b"FOR UPDATE", b"INSERT INTO", b"CONSTRAINTS"):
            proxy.arm(mark)
            with pytest.raises(RetriableError):
                target.write(written)
            assert bench.rows() == []
        assert proxy.cuts == 4
        target.write(written)
    assert bench.rows() == [("a", 1, 1)]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_commit_without_an_answer_is_found_by_writing_again(
    bench: Bench, proxy: CutProxy, is_answered: bool
) -> None:
    bench.create("CREATE TABLE {} (page text, views int8, version int8)")
    with closing(bench.target(mode="append")) as target:
        written = batch(target.claim(PLACE), [("a", 1, 1), ("a", 1, 1)])
        proxy.arm(b"CONSTRAINTS", b"COMMIT", is_answered=is_answered)
        with pytest.raises(OutcomeUnknownError):
            target.write(written)
        assert proxy.cuts == 1
        if is_answered:
            eventually(bench.rows)
        target.write(written)
        target.write(batch(after(written), [("b", 1, 1)]))
    assert bench.rows() == [("a", 1, 1), ("a", 1, 1), ("b", 1, 1)]


def test_a_server_that_is_down_is_reported_and_found_again(tmp_path: Path) -> None:
    with running_postgres() as server:
        bench = Bench(server, tmp_path, "views", server.port)
        bench.create()
        with closing(bench.target()) as target:
            written = batch(target.claim(PLACE), [("a", 1, 1)])
            server.stop()
            with pytest.raises(RetriableError):
                target.write(written)
            with pytest.raises(RetriableError, match="the server does not answer"):
                target.probe()
            server.start()
            target.probe()
            target.write(written)
        assert bench.rows() == [("a", 1, 1)]


@pytest.mark.parametrize(
    ("statement", "faults"),
    [
        ("CREATE TABLE {} (page text PRIMARY KEY, views int8)", ["version: the column is missing"]),
        (
            "CREATE TABLE {} (page text PRIMARY KEY, views int4, version text)",
            ["views: the column has the type int4; expected int8", "version: the column has"],
        ),
        ("CREATE TABLE {} (page text, views int8, version int8)", ["no unique index decides"]),
        (
            "CREATE TABLE {} (page text, views int8, version int8, UNIQUE (page, views))",
            ["no unique index decides"],
        ),
        (
            "CREATE TABLE {} (page text PRIMARY KEY, views int8, version int8, z int NOT NULL)",
            ["z: the table needs a value that the delivery does not have"],
        ),
        (
            "CREATE UNLOGGED TABLE {} (page text PRIMARY KEY, views int8, version int8)",
            ["the table loses its rows when the server crashes"],
        ),
        (
            (
                "CREATE TABLE {} (page text PRIMARY KEY, views int8,"
                " version int8 GENERATED ALWAYS AS (views) STORED)"
            ),
            ["version: the table computes this column"],
        ),
        ("CREATE VIEW {} AS SELECT 'a'::text AS page, 1::int8 AS views", ["not a table"]),
    ],
)
def test_a_table_of_another_shape_is_refused(
    bench: Bench, statement: str, faults: Sequence[str]
) -> None:
    bench.create(statement)
    with closing(bench.target()) as target, pytest.raises(ConfigError) as refused:
        target.check()
    found = [str(fault) for fault in refused.value.faults]
    assert len(found) == len(faults)
    for told, expected in zip(found, faults, strict=True):
        assert expected in told


def test_a_missing_table_is_one_sentence(bench: Bench) -> None:
    with (
        closing(bench.target()) as target,
        pytest.raises(
            ConfigError, match=f"the table does not exist: PostgreSQL, table {bench.name}"
        ),
    ):
        target.check()


def test_a_table_that_was_created_again_is_refused(bench: Bench, server: Postgres) -> None:
    bench.create()
    with closing(bench.target()) as target:
        target.write(batch(target.claim(PLACE), [("a", 1, 1)]))
    bench.create("DROP TABLE {}")
    bench.create()
    with (
        closing(bench.target()) as target,
        pytest.raises(ConfigError, match="has written to another table before"),
    ):
        target.claim(PLACE)


@pytest.mark.parametrize("text", ["postgresql://onceflow:wrong-{}@127.0.0.1:{}/postgres", "{} {}"])
def test_no_message_shows_the_connection_string(bench: Bench, server: Postgres, text: str) -> None:
    bench.create()
    with closing(bench.target()) as target:
        (bench.folder / "dsn").write_text(text.format(PASSWORD, server.port))
        with pytest.raises(ConfigError) as refused:
            target.check()
    told = str(refused.value)
    assert "dsn_file" in told
    assert PASSWORD not in told
    assert refused.value.__cause__ is None


def test_a_missing_right_is_one_sentence(bench: Bench, server: Postgres) -> None:
    bench.create()
    with psycopg.connect(server.dsn) as connection:
        role = Identifier(f"reader_{bench.name}")
        statement = SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        connection.execute(statement.format(role, PASSWORD))
        connection.execute(SQL("GRANT SELECT ON {} TO {}").format(Identifier(bench.name), role))
    with closing(bench.target()) as target:
        dsn = server.dsn.replace("onceflow:", f"reader_{bench.name}:")
        (bench.folder / "dsn").write_text(dsn)
        with pytest.raises(ConfigError, match="the right INSERT, UPDATE is missing"):
            target.check()
