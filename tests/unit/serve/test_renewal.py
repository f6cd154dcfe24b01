"""Renewed certificates and secrets are noticed, once, when they are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.serve.renewal import LOOK_INTERVAL_S, Renewal
from tests.support.clock import ManualClock


class Secrets:
    """Two files that are looked at; a test writes to one of them."""

    def __init__(self, folder: Path) -> None:
        self.file, self.clock = folder / "key", ManualClock()
        self.file.write_text("old")
        (folder / "password").write_text("old")
        self.renewal = Renewal([self.file, folder / "password"], self.clock)

    def looks(self, *contents: str | None, after_s: float = LOOK_INTERVAL_S) -> list[bool]:
        """Findings of each look after the file holds this; None: it is gone."""
        found = []
        for content in contents:
            self.file.unlink(missing_ok=True)
            if content is not None:
                self.file.write_text(content)
            self.clock.sleep(after_s)
            found.append(self.renewal.is_due())
        return found


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        (["old", "old"], [False, False]),
        (["half", "new", "new", "new"], [False, False, True, False]),
        ([None, None, "old", "old"], [False] * 4),
        ([None, "new", "new", "new"], [False, False, True, False]),
        (["new", "old", "old"], [False] * 3),
    ],
    ids=["the same", "written in two steps", "gone for a while", "replaced", "changed back"],
)
def test_what_changed_is_reported_once_when_it_stays(
    tmp_path: Path, contents: list[str | None], found: list[bool]
) -> None:
    assert Secrets(tmp_path).looks(*contents) == found


def test_it_does_not_look_all_the_time(tmp_path: Path) -> None:
    secrets = Secrets(tmp_path)
    assert secrets.looks(*["new"] * 4, after_s=LOOK_INTERVAL_S / 2) == [False, False, False, True]
