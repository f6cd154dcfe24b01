"""Tables of Delta Lake on disk and in an object store, as the tests write and read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from onceflow.columns import parse_columns
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import TargetSpec
from onceflow.testing.targets.contract import TakingRows
from onceflow_connectors.delta.block import DeltaBlock
from tests.support.sites.object_store import ACCESS_KEY, BUCKET, SECRET_KEY, ObjectStore

KEYS = f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"


@dataclass
class Place:
    """Where one table is.

    Args:
        folder: of the delivery file.
        storage: the block of that name; None for a table on disk.
    """

    folder: Path
    path: str
    storage: Mapping[str, Any] | None = None

    @property
    def block(self) -> Mapping[str, Any]:
        """The keys of the delivery file that name it."""
        found = {"path": self.path}
        return {**found, "storage": self.storage} if self.storage else found

    def target(self, ddl: str, name: str = "d", **block: Any) -> Target:
        spec = TargetSpec(name, parse_columns(ddl), self.folder)
        target = DeltaBlock.model_validate({**self.block, **block}).target(spec)
        return TakingRows(target, spec.columns)

    @property
    def uri(self) -> str:
        return self.path if self.storage else str(self.folder / self.path)

    @property
    def options(self) -> dict[str, str]:
        """For the library, as a stranger with the keys uses it."""
        if self.storage is None:
            return {}
        return {
            "aws_endpoint": self.storage["endpoint"],
            "aws_region": "us-east-1",
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "allow_http": "true",
        }

    def table(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=self.options)

    def create(self, schema: pa.Schema, **more: Any) -> DeltaTable:
        types = Schema.from_arrow(schema)
        return DeltaTable.create(self.uri, types, storage_options=self.options, **more)

    def rows(self, *columns: str) -> list[Any]:
        """As tuples, sorted by their text."""
        found = self.table().to_pyarrow_table().to_pylist()
        rows = [tuple(each[name] for name in columns or each) for each in found]
        return sorted(rows, key=repr)


def on_disk(folder: Path) -> Place:
    return Place(folder, "table")


def in_store(folder: Path, store: ObjectStore, name: str, port: int | None = None) -> Place:
    """A table in the bucket; the port may be that of a proxy."""
    (folder / "keys").write_text(KEYS)
    storage = {
        "endpoint": f"http://{store.host}:{port or store.port}",
        "region": "us-east-1",
        "credentials_file": "keys",
        "allow_http": True,
    }
    return Place(folder, f"s3://{BUCKET}/{name}", storage)
