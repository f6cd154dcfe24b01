"""Renewed certificates and secrets are noticed, once, when they are whole."""

from __future__ import annotations

from pathlib import Path

from onceflow.serve.renewal import LOOK_INTERVAL_S, Renewal
from tests.support.clock import ManualClock


def looks(renewal: Renewal, clock: ManualClock, count: int) -> list[bool]:
    found = []
    for _ in range(count):
        clock.sleep(LOOK_INTERVAL_S)
        found.append(renewal.is_due())
    return found


def test_what_stays_is_not_renewed(tmp_path: Path) -> None:
    file, clock = tmp_path / "key", ManualClock()
    file.write_text("old")
    assert looks(Renewal([file], clock), clock, 3) == [False, False, False]


def test_what_changed_is_told_once_when_it_stays(tmp_path: Path) -> None:
    file, other, clock = tmp_path / "key", tmp_path / "password", ManualClock()
    file.write_text("old")
    other.write_text("old")
    renewal = Renewal([file, other], clock)
    other.write_text("half of the n")
    assert looks(renewal, clock, 1) == [False]
    other.write_text("new")
    assert looks(renewal, clock, 3) == [False, True, False]


def test_files_that_are_gone_are_waited_for(tmp_path: Path) -> None:
    file, clock = tmp_path / "key", ManualClock()
    file.write_text("old")
    renewal = Renewal([file], clock)
    file.unlink()
    assert looks(renewal, clock, 3) == [False, False, False]
    file.write_text("old")
    assert looks(renewal, clock, 3) == [False, False, False]
    file.write_text("new")
    assert looks(renewal, clock, 3) == [False, True, False]


def test_it_does_not_look_all_the_time(tmp_path: Path) -> None:
    file, clock = tmp_path / "key", ManualClock()
    file.write_text("old")
    renewal = Renewal([file], clock)
    file.write_text("new")
    clock.sleep(LOOK_INTERVAL_S / 2)
    assert not renewal.is_due()
    assert looks(renewal, clock, 2) == [False, True]


def test_a_change_back_is_no_renewal(tmp_path: Path) -> None:
    file, clock = tmp_path / "key", ManualClock()
    file.write_text("old")
    renewal = Renewal([file], clock)
    file.write_text("new")
    assert looks(renewal, clock, 1) == [False]
    file.write_text("old")
    assert looks(renewal, clock, 3) == [False, False, False]
