"""A table of Delta Lake on disk after a power cut, at every moment of a process that writes it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from onceflow.contracts.target import Batch, Mark, Move
from tests.support.batches import DDL, PLACE, numbered
from tests.support.delta_writer import MARK
from tests.support.power_cut import Call, Disk, Loss, traced
from tests.support.sites.tables import on_disk

BATCHES = 8


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Call]]:
    folder, traces = tmp_path_factory.mktemp("table"), tmp_path_factory.mktemp("trace")
    calls = traced("tests.support.delta_writer", str(folder), str(BATCHES), folder=traces)
    return folder, [*calls]


@pytest.mark.crash
@pytest.mark.parametrize("loss", Loss)
def test_after_a_power_cut_rows_equal_the_position_and_nothing_written_is_lost(
    written: tuple[Path, list[Call]], loss: Loss, tmp_path: Path
) -> None:
    folder, calls = written
    disk = Disk(folder)
    cuts = 0
    for call in calls:
        if disk.apply(call):
            cuts += 1
            left = tmp_path / str(cuts)
            left.mkdir()
            disk.restore(left, loss)
            acknowledged = int(disk.output.rpartition(MARK)[2] or 0)
            check(left, acknowledged)
    assert acknowledged == 2 * BATCHES
    assert any("checkpoint" in path.name for path in disk.names)
    assert cuts > 10 * BATCHES


def check(left: Path, acknowledged: int) -> None:
    """Go on in what is left. Rows are those before the position, each once."""
    place = on_disk(left)
    with closing(place.target(DDL)) as target:
        target.check()
        claim = target.claim(PLACE)
        offset = claim.mark.offset if claim.mark else 0
        assert offset >= acknowledged
        assert place.rows() == sorted(numbered(0, offset), key=repr)
        move = Move(claim, Mark(offset + 1, "next"))
        target.write(Batch((), numbered(offset, 1), [move]))
        assert target.claim(PLACE) == replace(
            claim, claim_epoch=claim.claim_epoch + 1, mark=move.to
        )
    assert place.rows() == sorted(numbered(0, offset + 1), key=repr)
