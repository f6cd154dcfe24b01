"""`onceflow status` on a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.cli.operate.status import print_text
from onceflow.texts import iso_text, time_text

NEWEST_MS = 1_793_534_580_000
FACTS: dict[str, Any] = {
    "pipeline": "page-views",
    "generation": 1,
    "batch_id": 7,
    "batch_timestamp": time_text(NEWEST_MS),
    "event_watermark": time_text(NEWEST_MS),
    "owner": None,
    "records": {"read": 0, "written": 4},
    "totals": {"read": 8, "written": 4},
    "waivers": (),
    "parameters": {"limit": "5.00"},
    "references": {"names": "0:17"},
    "watermark_holder": None,
    "open_transactions": (),
    "retention": (),
    "not_seen": {},
    "sources": [
        {
            "source": "clicks",
            "topic": "clicks-of-a-team-with-a-long-name",
            "partition": 0,
            "position": 1_234_567,
            "lag": 12_345,
            "undecided": 0,
            "newest_record": time_text(NEWEST_MS),
        }
    ],
}


def test_no_figure_and_no_time_is_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_text(FACTS)
    shown = capsys.readouterr().out
    assert "2026-11-01 12:03:00 UTC" in shown.split("newest record")[1]
    assert "1,234,567" in shown
    assert "12,345" in shown
    assert "…" not in shown
    assert "newest_record" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_people_and_programs_read_moments_in_their_own_way() -> None:
    assert time_text(NEWEST_MS) == "2026-11-01 12:03:00 UTC"
    assert iso_text(NEWEST_MS) == "2026-11-01T12:03:00+00:00"
    assert time_text(0) == iso_text(0) == "-"
