"""Stores that deliveries fill in the tests. Each implements `tests.support.deliveries.Store`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from deltalake import DeltaTable
from psycopg.sql import SQL, Identifier

from tests.support.sites.object_store import ObjectStore
from tests.support.sites.postgres import Postgres
from tests.support.sites.tables import Place, in_store, on_disk


@dataclass
class PostgresStore:
    """A table without a key."""

    server: Postgres
    columns: str = "n int8, page text"
    table: str = ""

    @property
    def to(self) -> str:
        return f"postgres: {{dsn_file: dsn, table: {self.table}, mode: append}}"

    @property
    def scope(self) -> str:
        return f"from the topic to the table {self.table}"

    def create(self, name: str, folder: Path) -> None:
        self.table = name.replace("-", "_")
        (folder / "dsn").write_text(self.server.dsn)
        with psycopg.connect(self.server.dsn) as connection:
            statement = SQL("CREATE TABLE {} ({})")
            columns = SQL(self.columns)
            connection.execute(statement.format(Identifier(self.table), columns))

    def content(self) -> Counter[tuple[int, str]]:
        with psycopg.connect(self.server.dsn) as connection:
            statement = SQL("SELECT n, page FROM {}").format(Identifier(self.table))
            return Counter(connection.execute(statement).fetchall())

    @contextmanager
    def away(self) -> Iterator[None]:
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


@dataclass
class DeltaStore:
    """A table of Delta Lake, which the delivery creates: in a bucket, or on disk without one."""

    objects: ObjectStore | None = None
    place: Place | None = None

    @property
    def to(self) -> str:
        place = self._place
        if place.storage is None:
            return f"delta: {{path: {place.path}}}"
        storage = ", ".join(f"{name}: {str(each).lower()}" for name, each in place.storage.items())
        return f"delta: {{path: '{place.path}', storage: {{{storage}}}}}"

    @property
    def scope(self) -> str:
        return f"from the topic to the table {self._place.path}"

    def create(self, name: str, folder: Path) -> None:
        objects = self.objects
        self.place = on_disk(folder) if objects is None else in_store(folder, objects, name)

    def content(self) -> Counter[tuple[int, str]]:
        place = self._place
        if not DeltaTable.is_deltatable(place.uri, place.options):
            return Counter()
        return Counter(place.rows("n", "page"))

    @contextmanager
    def away(self) -> Iterator[None]:
        assert self.objects is not None, "a disk is never away"
        self.objects.stop()
        try:
            yield
        finally:
            self.objects.start()

    @property
    def _place(self) -> Place:
        assert self.place is not None, "not created"
        return self.place
