"""The file of a reference, whatever becomes of it, and the versions that are kept of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError
from onceflow.pipeline.references.declaration import Reference
from onceflow.pipeline.references.table import decoded
from onceflow.runtime.checkpoint.files import CheckpointFiles
from onceflow.runtime.checkpoint.reference_files import SPARED_MS, ReferenceFiles
from onceflow.runtime.source.references import (
    FollowedReference,
    ReferenceFollower,
    ReferenceSettings,
)
from tests.support.clock import ManualClock

NAMES = Reference("symbol STRING, name STRING", ("symbol",))


class Desk:
    """A file, its checkpoint, and what a driver learns from them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, ManualClock()
        self.file = folder / "names.csv"
        self.kept = ReferenceFiles(CheckpointFiles(str(folder / "checkpoint"), {}))
        self.told: Mapping[str, Any] | None = None
        self.reference = NAMES
        self.restart()

    def restart(self) -> None:
        followed = FollowedReference(self.reference, str(self.file), "", 1000)
        settings = ReferenceSettings({"names": followed}, str(self.folder / "checkpoint"), {})
        self.follower = ReferenceFollower(settings, Connection("nowhere:1"), self.clock)

    def write(self, *rows: str, columns: str = "symbol,name") -> None:
        """Replace the file, as a rename does."""
        new = self.folder / "new.csv"
        new.write_text("\n".join([columns, *rows, ""]))
        new.replace(self.file)

    def look(self, times: int = 1) -> Mapping[str, Any]:
        for _ in range(times):
            self.told = self.follower.next(self.told)
            self.clock.sleep(1)
        assert self.told is not None
        found: Mapping[str, Any] = self.told["names"]
        return found

    def names(self) -> list[str]:
        assert self.told is not None
        rows = self.kept.read(self.told["names"]["rows"])
        assert rows is not None
        return [row["name"] for row in decoded(rows).to_pylist()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.write("F,Ford")
    return made


def test_a_version_is_the_digest_of_the_file_and_its_rows_are_kept(desk: Desk) -> None:
    found = desk.look()
    assert found["of"] == hashlib.sha256(desk.file.read_bytes()).hexdigest()
    assert desk.names() == ["Ford"]
    assert desk.look(3) == found


def test_a_changed_file_is_read_when_it_was_left_alone_for_a_look(desk: Desk) -> None:
    first = desk.look()
    desk.write("F,Ford Motor")
    assert desk.look() == first
    desk.write("F,Ford Motor Company")
    assert desk.look() == first
    assert desk.look() != first
    assert desk.names() == ["Ford Motor Company"]
    desk.write("F,Ford")
    assert desk.look(2) == first


def test_no_look_is_sooner_than_the_file_says(desk: Desk) -> None:
    desk.follower.next(None)
    first = desk.look()
    desk.file.unlink()
    desk.restart()
    desk.told = desk.follower.next(desk.told)
    assert "refused" in desk.told["names"]
    desk.write("F,Ford")
    for _ in range(9):
        desk.clock.sleep(0.1)
        assert "refused" in desk.follower.next(desk.told)["names"]
    assert desk.look(3) == first


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (("F,Ford", "F,Again"), "line 2 and line 3 have the same key: symbol F"),
        (("F",), "line 2: CSV parse error: Expected 2 columns, got 1: F"),
    ],
)
def test_the_last_good_version_stays(desk: Desk, rows: tuple[str, ...], why: str) -> None:
    first = desk.look()
    desk.write(*rows)
    refused = desk.look(2)
    assert refused == {**first, "refused": why}
    assert desk.look(3) == refused
    desk.restart()
    assert desk.look(3) == refused
    desk.write("F,Good")
    assert "refused" not in desk.look(2)
    assert desk.names() == ["Good"]


def test_a_file_that_vanishes_or_has_other_columns_changes_nothing(desk: Desk) -> None:
    first = desk.look()
    desk.write("F,Ford", columns="symbol,title")
    assert desk.look(2)["refused"] == "it has no column `name`"
    desk.file.unlink()
    assert desk.look()["refused"] == "it cannot be read: No such file or directory"
    desk.file.mkdir()
    assert desk.look()["refused"] == "it is not a regular file"
    desk.file.rmdir()
    desk.write("F,Ford")
    assert desk.look(2) == first


def test_without_any_good_version_there_is_no_batch(desk: Desk) -> None:
    desk.write("F,Ford", "F,Again")
    with pytest.raises(ConfigError) as refused:
        desk.look()
    assert "names" in str(refused.value)
    assert "line 2 and line 3 have the same key: symbol F" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    desk.write("F,Ford")
    desk.look()
    assert desk.names() == ["Ford"]


def test_a_file_that_changes_while_it_is_read_is_read_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.look()
    read = Path.open
    contents = ["F,Second\n", "F,Sec"]

    def half_written(self: Path, *arguments: Any, **named: Any) -> Any:
        found = read(self, *arguments, **named)
        if self == desk.file and contents and arguments == ("rb",):
            desk.file.write_text(f"symbol,name\n{contents.pop()}")
        return found

    desk.write("F,First")
    monkeypatch.setattr(Path, "open", half_written)
    seen = [desk.names() for _ in range(8) if desk.look()]
    assert {name for names in seen for name in names} == {"Ford", "Second"}


def test_a_frozen_follower_looks_once(desk: Desk) -> None:
    desk.look()
    desk.restart()
    desk.write("F,Last")
    desk.follower.freeze()
    last = desk.look()
    assert desk.names() == ["Last"]
    desk.write("F,Later")
    assert desk.look(5) == last


def test_rows_that_were_kept_under_another_declaration_are_not_used(desk: Desk) -> None:
    first = desk.look()
    desk.reference = Reference("symbol STRING, name STRING", ("symbol", "name"))
    desk.restart()
    changed = desk.look()
    assert (changed["of"], changed["declared"]) == (first["of"], changed["declared"])
    assert changed["declared"] != first["declared"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"damaged")])
def test_rows_that_are_lost_are_kept_again_for_the_next_batch(desk: Desk, damage: Any) -> None:
    first = desk.look()
    damage(desk.folder / "checkpoint" / "references" / f"{first['rows']}.arrow")
    assert desk.kept.read(first["rows"]) is None
    desk.restart()
    assert desk.look() == first
    assert desk.names() == ["Ford"]


def test_what_no_batch_needs_is_removed_once_it_is_old(desk: Desk) -> None:
    now_ms = SystemClock().unix_ms()
    names = [desk.kept.write(text) for text in (b"needed", b"old", b"young")]
    for name in names[:2]:
        file = desk.folder / "checkpoint" / "references" / f"{name}.arrow"
        os.utime(file, (0, now_ms / 1000 - 2 * SPARED_MS / 1000))
    desk.kept.sweep({names[0]}, now_ms)
    assert [desk.kept.read(name) for name in names] == [b"needed", None, b"young"]
