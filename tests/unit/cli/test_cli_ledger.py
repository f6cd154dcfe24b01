"""The table of `ledger show`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceflow.cli.operate.ledger import print_table
from onceflow.protocol.delivery import Delivery
from onceflow.texts import time_text
from tests.support.entries import head


def test_the_table_fits_80_columns_and_breaks_no_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    entry = head(0, 0, 10)
    at_ms = 1_795_523_254_000
    print_table([replace(entry, plan=replace(entry.plan, batch_timestamp_ms=at_ms))])
    heading, row = capsys.readouterr().out.splitlines()
    assert "digest" in heading
    assert time_text(at_ms) in row
    assert "…" not in heading + row


def test_a_mode_and_what_it_puts_at_risk_are_shown_where_there_is_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_table([head(0, 0, 10)])
    assert "at risk" not in capsys.readouterr().out
    before = head(1, 10, 20).under(Delivery.AT_MOST_ONCE)
    after = replace(before, sink=before.sink.advanced({0: 3})).under(Delivery.AT_MOST_ONCE)
    print_table([before, after])
    shown = capsys.readouterr().out
    assert "at_most_once" in shown
    assert "0: 2-2 " in shown
    assert "0: 2-5 " in shown
