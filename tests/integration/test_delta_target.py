"""The target `delta` on disk and in an object store, without a broker."""

from __future__ import annotations

import json
import os
import resource
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceflow.contracts.connector import Place as Partition
from onceflow.contracts.target import Batch, Claim, Mark, Move, Target, Values
from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow_connectors.delta.target import CHECKPOINT_EVERY
from tests.support.batches import DDL, PLACE, after, batch, numbered
from tests.support.sites.object_store import ObjectStore, running_store
from tests.support.sites.tables import Place, in_store, on_disk

OTHER: Partition = ("views", 1)
RACES = 50
NOBODY = 65534


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with running_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(params=["disk", pytest.param("store", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return on_disk(tmp_path)
    return in_store(tmp_path, request.getfixturevalue("store"), uuid.uuid4().hex)


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    return on_disk(tmp_path)


def test_rows_and_position_are_one_commit_and_a_batch_is_written_once(place: Place) -> None:
    with closing(place.target(DDL)) as target:
        target.check()
        claim = target.claim(PLACE)
        assert claim == Claim(PLACE, 1, None)
        assert target.positions() == {}
        first = batch(claim, [(1, "a"), (1, "a"), (2, None)])
        before = place.table().version()
        target.write(first)
        target.write(first)
        assert place.table().version() == before + 1
        target.write(batch(after(first), []))
        target.write(batch(after(first), [(3, "ä")]))
    assert place.rows() == [(1, "a"), (1, "a"), (2, None), (3, "ä")]
    with closing(place.target(DDL)) as target:
        assert target.positions() == {PLACE: Mark(4, "after 4")}
        assert target.claim(PLACE) == Claim(PLACE, 2, Mark(4, "after 4"))


def test_several_partitions_move_in_one_commit(place: Place) -> None:
    with closing(place.target(DDL)) as target:
        one, two = target.claim(PLACE), target.claim(OTHER)
        before = place.table().version()
        target.write(batch(one, numbered(0, 3), Move(two, Mark(7, "of the other"))))
        assert place.table().version() == before + 1
        found = {PLACE: Mark(3, "after 3"), OTHER: Mark(7, "of the other")}
        assert target.positions() == found


def test_deliveries_to_one_table_have_positions_of_their_own(place: Place) -> None:
    with closing(place.target(DDL)) as one, closing(place.target(DDL, name="e")) as two:
        one.write(batch(one.claim(PLACE), numbered(0, 2)))
        assert two.claim(PLACE) == Claim(PLACE, 1, None)
        two.write(batch(Claim(PLACE, 1, None), numbered(0, 1)))
        assert one.positions() == {PLACE: Mark(2, "after 2")}
        assert two.positions() == {PLACE: Mark(1, "after 1")}


def test_values_arrive_as_they_are(place: Place) -> None:
    ddl = (
        "b BOOLEAN, t TINYINT, s SMALLINT, i INT, n BIGINT, f FLOAT, d DOUBLE, p STRING, x BINARY,"
        " c DECIMAL(20,2), day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, tags ARRAY<STRING>,"
        " counts MAP<INT, BIGINT>, more STRUCT<at: TIMESTAMP, x: BINARY, c: DECIMAL(5,2)>"
    )
    at = datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC)
    wall = at.replace(tzinfo=None)
    plain = (
        *(True, -128, 32767, -(2**31), 2**63 - 1, 0.5, 1e300, "ä\0", b"\x00\xff"),
        *(Decimal("-123456789012345678.99"), date(1, 1, 1), at, wall),
    )
    nested = (
        '["x", null]',
        '{"1": 2, "-3": null}',
        '{"at":"2024-02-29T00:00:00Z","x":"AP8=","c":1.5}',
    )
    with closing(place.target(ddl)) as target:
        target.write(batch(target.claim(PLACE), [(*plain, *nested), (None,) * 16]))
    [nulls, found] = place.rows()
    assert nulls == (None,) * 16
    assert found[:13] == plain
    assert found[13] == ["x", None]
    assert dict(found[14]) == {1: 2, -3: None}
    more = {"at": datetime(2024, 2, 29, tzinfo=UTC), "x": b"\x00\xff", "c": Decimal("1.50")}
    assert found[15] == more
    kinds = {each.name: each.type for each in place.table().schema().fields}
    written = [
        str(getattr(kinds[name], "type", "")) for name in ("t", "n", "c", "day", "at", "wall")
    ]
    assert written == ["byte", "long", "decimal(20,2)", "date", "timestamp", "timestamp_ntz"]


def test_rows_are_filed_by_partition_and_found_by_it(place: Place) -> None:
    ddl = "n BIGINT, page STRING, day DATE"
    day = date(2024, 1, 2)
    rows = [(1, "a/b c%", day), (2, None, day), (3, "a/b c%", None), (4, "a/b c%", day)]
    with closing(place.target(ddl, partition_by=["page", "day"])) as target:
        target.write(batch(target.claim(PLACE), rows))
    assert place.rows("n", "page", "day") == sorted(rows, key=repr)
    table = place.table()
    assert table.metadata().partition_columns == ["page", "day"]
    assert len(table.file_uris()) == 3
    found = table.to_pyarrow_table(filters=[("page", "=", "a/b c%"), ("day", "=", day)])
    assert sorted(found["n"].to_pylist()) == [1, 4]


def test_readers_can_skip_files_by_the_statistics(disk: Place) -> None:
    with closing(disk.target("n BIGINT, page STRING, day DATE, at TIMESTAMP")) as target:
        rows = [(1, "a", date(2024, 1, 2), None), (5, None, date(2023, 1, 2), None)]
        target.write(batch(target.claim(PLACE), rows))
    [entry] = [json.loads(line) for line in newest_entry(disk).splitlines() if '"add"' in line]
    found = json.loads(entry["add"]["stats"])
    assert found == {
        "numRecords": 2,
        "minValues": {"n": 1, "page": "a", "day": "2023-01-02"},
        "maxValues": {"n": 5, "page": "a", "day": "2024-01-02"},
        "nullCount": {"n": 0, "page": 1, "day": 0, "at": 2},
    }


def newest_entry(place: Place) -> str:
    *_, newest = sorted((place.folder / "table" / "_delta_log").glob("*.json"))
    return newest.read_text()


def test_an_older_claim_writes_nothing(place: Place) -> None:
    with closing(place.target(DDL)) as zombie, closing(place.target(DDL)) as successor:
        old = zombie.claim(PLACE)
        new = successor.claim(PLACE)
        with pytest.raises(AbortableError, match="expected claim 1; found claim 2"):
            zombie.write(batch(old, [(-1, "zombie")]))
        written = batch(new, numbered(0, 1))
        successor.write(written)
        with pytest.raises(AbortableError):
            zombie.write(batch(old, [(-1, "zombie")]))
        with pytest.raises(AbortableError):
            zombie.write(batch(replace(old, mark=Mark(1, "after 1")), [(-1, "zombie")]))
    assert place.rows() == [(0, "page 0")]


def test_a_claim_between_look_and_commit_fences(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The narrowest moment: the other one claims after the claim was compared."""
    with closing(place.target(DDL)) as zombie, closing(place.target(DDL)) as successor:
        old = zombie.claim(PLACE)
        claims: list[Claim] = []

        def reach(point: str) -> None:
            if point == "before_commit" and not claims:
                claims.append(successor.claim(PLACE))

        monkeypatch.setattr("onceflow_connectors.delta.target.reach", reach)
        with pytest.raises(AbortableError, match="expected claim 1; found claim 2"):
            zombie.write(batch(old, [(-1, "zombie")]))
        assert claims == [Claim(PLACE, 2, None)]
        successor.write(batch(claims[0], numbered(0, 1)))
    assert place.rows() == [(0, "page 0")]


@pytest.mark.parametrize("others", [PLACE, OTHER], ids=["one partition", "two partitions"])
def test_two_writers_that_race_write_each_row_once(place: Place, others: Partition) -> None:
    """In one partition, each keeps claiming it from the other; in two, none stops the other."""
    races = RACES if place.storage is None else RACES // 5
    with closing(place.target(DDL)) as target:
        target.check()
    errors: list[BaseException] = []
    fenced: list[int] = []

    def write(partition: Partition) -> None:
        try:
            with closing(place.target(DDL)) as target:
                for _ in range(races):
                    race(target, partition, fenced)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=write, args=(each,)) for each in (PLACE, others)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(300)
    assert not errors
    with closing(place.target(DDL)) as target:
        offsets = {each: mark.offset for each, mark in target.positions().items()}
    expected = [
        (n, f"page {n} of {partition}")
        for (_, partition), offset in offsets.items()
        for n in range(offset)
    ]
    assert place.rows() == sorted(expected, key=repr)
    assert len(expected) > races
    assert bool(fenced) == (others == PLACE)


def race(target: Target, partition: Partition, fenced: list[int]) -> None:
    """Claim, and write until another claims."""
    try:
        claim = target.claim(partition)
        for _ in range(3):
            start = claim.mark.offset if claim.mark else 0
            rows = [(n, f"page {n} of {partition[1]}") for n in range(start, start + 2)]
            written = batch(claim, rows)
            target.write(written)
            claim = after(written)
    except AbortableError:
        fenced.append(1)
    except RetriableError:
        pass  # the other was faster ten times


@pytest.mark.parametrize("is_large", [False, True])
def test_checkpoints_compaction_and_vacuum_keep_rows_and_positions(
    place: Place, is_large: bool
) -> None:
    with closing(place.target(DDL)) as target:
        written = batch(target.claim(PLACE), numbered(0, 1))
        target.write(written)
        for n in range(1, CHECKPOINT_EVERY + 3 if is_large else 3):
            written = batch(after(written), numbered(n, 1))
            target.write(written)
        if is_large and place.storage is None:
            assert [*(place.folder / "table/_delta_log").glob("*.checkpoint.parquet")]
        table = place.table()
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        target.write(batch(after(written), numbered(n + 1, 1)))
    assert place.rows() == sorted(numbered(0, n + 2), key=repr)
    with closing(place.target(DDL)) as target:
        assert target.claim(PLACE) == Claim(PLACE, 2, Mark(n + 2, f"after {n + 2}"))


def test_old_states_are_removed(disk: Place) -> None:
    folder = disk.folder / "table/_onceflow/d/views"
    with closing(disk.target(DDL)) as target:
        claim = target.claim(PLACE)
        for _ in range(3):
            written = batch(claim, numbered(0, 1))
            target.write(written)
            claim = after(written)
        assert len([*folder.iterdir()]) == 1
        (folder / f"0-{1:020}-{1:016x}").write_text("of a process that died")
        (folder / f"0-{9:020}-{1:016x}").write_text("of one that is about to commit")
        target.claim(PLACE)
        assert len([*folder.iterdir()]) == 2


@pytest.mark.parametrize("content", [None, b"", b"after 2"], ids=["missing", "empty", "other"])
def test_a_state_that_is_lost_or_damaged_is_never_taken(disk: Place, content: bytes | None) -> None:
    with closing(disk.target(DDL)) as target:
        target.write(batch(target.claim(PLACE), numbered(0, 1)))
    [state] = (disk.folder / "table/_onceflow/d/views").iterdir()
    state.unlink()
    if content is not None:
        state.write_bytes(content)
    with (
        closing(disk.target(DDL)) as target,
        pytest.raises(CorruptionError, match="the filter is missing or damaged"),
    ):
        target.claim(PLACE)


def test_rows_that_are_refused_are_found_and_nothing_is_written(place: Place) -> None:
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), nullable=False),
            pa.field("page", pa.string(), nullable=False),
            pa.field("tags", pa.list_(pa.int32())),
            pa.field("more", pa.string()),
        ]
    )
    place.create(schema, partition_by=["page"])
    rows = [
        (1, "a", "[1]"),
        (2, None, None),
        (None, "a", None),
        (4, "", None),
        (5, "a", '["x"]'),
        (6, "b", "[2147483648]"),
        (7, "b", None),
    ]
    with closing(place.target("n BIGINT, page STRING, tags ARRAY<INT>")) as target:
        claim = target.claim(PLACE)
        with pytest.raises(RecordError):
            target.write(batch(claim, rows))
        found = target.refused(batch(claim, rows))
        assert {n: text.partition(":")[0] for n, text in found.items()} == {
            1: "page",
            2: "n",
            3: "page",
            4: "tags",
            5: "tags",
        }
        assert place.rows() == []
        assert target.positions() == {}
        target.write(batch(claim, [row for n, row in enumerate(rows) if n not in found]))
    assert place.rows("n", "page", "tags", "more") == [(1, "a", [1], None), (7, "b", None, None)]


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Let this process be another user's, or take its own right to write."""
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(mode)


@pytest.mark.parametrize("is_open", [False, True])
def test_missing_rights_are_one_sentence(disk: Place, is_open: bool) -> None:
    folder, message = disk.folder, "Permission denied.*; nothing was written"
    with closing(disk.target(DDL)) as target:
        if not is_open:
            with without_rights(folder), pytest.raises(ConfigError, match=message):
                target.check()
            return
        written = batch(target.claim(PLACE), numbered(0, 1))
        with without_rights(folder / "table"), pytest.raises(ConfigError, match=message):
            target.write(written)
        target.write(written)


@contextmanager
def file_limit(size_bytes: int) -> Iterator[None]:
    """No file may grow beyond it, as on a disk that is full; the error is EFBIG, not ENOSPC."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("limit", "rows", "state", "partition_by"),
    [
        (4000, [(1, "".join(map(chr, range(200, 9000))))], "s", ()),
        (2000, [(1, "a")], "s" * 4000, ()),
        (4000, [(n, str(n)) for n in range(40)], "s", "page"),
    ],
    ids=["rows", "state", "log"],
)
def test_a_disk_that_is_full_delays_and_leaves_nothing_half_written(
    disk: Place, limit: int, rows: Sequence[Values], state: str, partition_by: Any
) -> None:
    with closing(disk.target(DDL, partition_by=partition_by)) as target:
        claim = target.claim(PLACE)
        written = Batch((), rows, [Move(claim, Mark(9, state))])
        with file_limit(limit), pytest.raises((RetriableError, OutcomeUnknownError)):
            target.write(written)
        assert disk.rows() == []
        assert target.positions() == {}
        target.write(written)
        assert target.positions() == {PLACE: Mark(9, state)}
    assert disk.rows() == sorted(rows, key=repr)
    assert not [*(disk.folder / "table").rglob("*.unfinished")]
