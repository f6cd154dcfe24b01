"""Our targets, and that of an example, keep every promise of the contract, on real systems."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from onceflow.columns import NO_COLUMNS
from onceflow.contracts.target_block import SenderBlock, TargetBlock, TargetSpec, find_target
from onceflow.testing.targets import COLUMNS, RefusalPromises, SenderContract, TargetContract
from onceflow_connectors.delta.block import DeltaBlock
from onceflow_connectors.http.block import HttpBlock
from onceflow_connectors.postgres.block import PostgresBlock
from tests.support.jobs.numbered_files import EXAMPLES, install
from tests.support.sites.postgres import Postgres, running_postgres
from tests.support.sites.receiver import Receiver, Rule, running_receiver
from tests.support.sites.tables import on_disk

POISON = 666
CHECK = "n int8 NOT NULL CHECK (n <> 666), page text"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    install(folder, EXAMPLES / "sqlite-target")
    return folder


@pytest.fixture(scope="module")
def web() -> Iterator[Receiver]:
    with running_receiver() as server:
        yield server


@dataclass
class InFolder:
    """A store of `onceflow.testing.targets` whose block is relative to a folder."""

    folder: Path
    kind: type[TargetBlock]
    given: Mapping[str, Any]

    @property
    def block(self) -> TargetBlock:
        return self.kind.model_validate(self.given)

    def spec(self, delivery: str) -> TargetSpec:
        return TargetSpec(delivery, COLUMNS, self.folder)

    def refused_number(self) -> int:
        return POISON


@dataclass
class Table(InFolder):
    server: Postgres | None = None

    def spec(self, delivery: str) -> TargetSpec:
        """Positions of all tests are in one table."""
        return super().spec(f"{delivery}-{self.given['table']}")

    def numbers(self) -> Sequence[int]:
        assert self.server is not None
        with psycopg.connect(self.server.dsn) as connection:
            found = SQL("SELECT n FROM {}").format(Identifier(self.given["table"]))
            return [n for (n,) in connection.execute(found)]


class TestPostgres(TargetContract, RefusalPromises):
    @pytest.fixture
    def store(self, postgres: Postgres, tmp_path: Path) -> Table:
        (tmp_path / "dsn").write_text(postgres.dsn)
        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(postgres.dsn) as connection:
            connection.execute(SQL("CREATE TABLE {} ({})").format(Identifier(name), SQL(CHECK)))
        given = {"dsn_file": "dsn", "table": name, "mode": "append"}
        return Table(tmp_path, PostgresBlock, given, postgres)


class Files(InFolder):
    def numbers(self) -> Sequence[int]:
        place = on_disk(self.folder)
        return [n for (n,) in place.rows("n")]


class TestDelta(TargetContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Files:
        return Files(tmp_path, DeltaBlock, {"path": "table"})


class Database(InFolder):
    def numbers(self) -> Sequence[int]:
        with closing(sqlite3.connect(self.folder / "views.db")) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM views")]


class TestSqlite(TargetContract, RefusalPromises):
    """The package of `examples/sqlite-target`, installed as a user would."""

    @pytest.fixture
    def store(self, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
        monkeypatch.syspath_prepend(package)
        with closing(sqlite3.connect(tmp_path / "views.db")) as connection:
            connection.execute("CREATE TABLE views (n NOT NULL CHECK (n <> 666), page)")
        return Database(tmp_path, find_target("sqlite"), {"file": "views.db", "table": "views"})


@dataclass
class Requests:
    """A receiver of `onceflow.testing.targets`."""

    server: Receiver
    folder: Path
    before: int

    @property
    def block(self) -> SenderBlock:
        return HttpBlock.model_validate({"url": self.server.url})

    def spec(self, delivery: str) -> TargetSpec:
        return TargetSpec(delivery, NO_COLUMNS, self.folder)

    def values(self) -> Sequence[bytes]:
        return [each.body for each in self.server.requests()[self.before :]]

    def refuse(self, value: bytes) -> None:
        self.server.obey(Rule(times=100, contains=value.decode(), status=422))


class TestHttp(SenderContract):
    @pytest.fixture
    def receiver(self, web: Receiver, tmp_path: Path) -> Requests:
        web.obey()
        return Requests(web, tmp_path, len(web.requests()))
