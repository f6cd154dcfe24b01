"""The target `delta` and a table that is missing, of another shape, removed or changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType

from onceflow.contracts.target import Batch, Claim, Target
from onceflow.errors import ConfigError, RetriableError
from tests.support.batches import DDL, PLACE, after, batch, numbered
from tests.support.sites.tables import Place, on_disk


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return on_disk(tmp_path)


PLAIN = pa.schema([pa.field("n", pa.int64()), pa.field("page", pa.string())])


def add_constraint(disk: Place) -> None:
    disk.create(PLAIN).alter.add_constraint({"small": "n < 10"})


@pytest.mark.parametrize(
    ("prepare", "block", "faults"),
    [
        (lambda p: p.create(PLAIN.remove(1)), {}, ["page: the column is missing"]),
        (
            lambda p: p.create(pa.schema([("n", pa.int32()), ("page", pa.list_(pa.string()))])),
            {},
            ["n: the column has the type integer; expected long", "page: the column has the type"],
        ),
        (
            lambda p: p.create(PLAIN.append(pa.field("z", pa.int8(), nullable=False))),
            {},
            ["z: the table needs a value that the delivery does not have"],
        ),
        (
            lambda p: p.create(PLAIN, partition_by=["n"]),
            {"partition_by": "page"},
            ["partition_by: the table is partitioned by n; expected page"],
        ),
        (add_constraint, {}, ["the table has the property delta.constraints.small"]),
        (
            lambda p: p.create(
                PLAIN, configuration={"delta.setTransactionRetentionDuration": "interval 1 days"}
            ),
            {},
            ["the table forgets positions"],
        ),
    ],
)
def test_a_table_of_another_shape_is_refused(
    disk: Place, prepare: Callable[[Place], Any], block: dict[str, Any], faults: Sequence[str]
) -> None:
    prepare(disk)
    before = disk.table().version()
    with closing(disk.target(DDL, **block)) as target, pytest.raises(ConfigError) as refused:
        target.check()
    found = [str(fault) for fault in refused.value.faults]
    assert len(found) == len(faults), found
    for told, expected in zip(found, faults, strict=True):
        assert expected in told
    assert disk.table().version() == before


def test_a_missing_table_is_created_only_if_that_is_wanted(disk: Place) -> None:
    missing = "the table does not exist: Delta Lake, table"
    with (
        closing(disk.target(DDL, create=False)) as target,
        pytest.raises(ConfigError, match=missing),
    ):
        target.check()
    with closing(disk.target(DDL, partition_by="page")) as target:
        target.check()
    fields = {each.name: each.nullable for each in disk.table().schema().fields}
    assert fields == {"n": False, "page": True}
    with closing(disk.target(DDL, create=False)) as target:
        target.check()


def _written_patiently(target: Target, written: Batch) -> None:
    try:
        target.write(written)
    except RetriableError:  # a new folder may have the inode of the old one
        target.write(written)


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_table_that_is_removed_under_a_delivery_ends_it(
    disk: Place, is_created_again: bool
) -> None:
    with closing(disk.target(DDL)) as target:
        written = batch(target.claim(PLACE), numbered(0, 1))
        target.write(written)
        shutil.rmtree(disk.folder / "table")
        if is_created_again:
            with closing(disk.target(DDL)) as other:
                other.check()
        later = batch(after(written), numbered(1, 1))
        with pytest.raises(ConfigError, match="the table was removed or created again"):
            _written_patiently(target, later)
    if is_created_again:
        assert disk.rows() == []
        with closing(disk.target(DDL)) as target:
            assert target.claim(PLACE) == Claim(PLACE, 1, None)


def test_a_table_that_is_changed_under_a_delivery_is_looked_at_again(disk: Place) -> None:
    with closing(disk.target(DDL)) as target:
        written = batch(target.claim(PLACE), numbered(0, 1))
        target.write(written)
        disk.table().alter.add_columns([Field("more", PrimitiveType("string"))])
        written = batch(after(written), numbered(1, 1))
        target.write(written)
        disk.table().alter.add_constraint({"small": "n < 2"})
        with pytest.raises(ConfigError, match=r"the table has the property delta\.constraints"):
            target.write(batch(after(written), numbered(2, 1)))
    assert disk.rows() == [(0, "page 0", None), (1, "page 1", None)]
