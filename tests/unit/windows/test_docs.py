"""The classes of docs/state.md, as they are printed there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from onceflow.processing import ProcessorHarness
from tests.support.documents.markdown import ROOT, Document

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("LastTen", [(1250, (1205, "x")), (50, (5, "x"))]),
        ("TenMinutes", [(min(n, 10),) for n in range(1, 16)]),
        ("Spree", [(1210,)]),
        # Until midnight in Berlin, and the next day, of 23 hours.
        ("Daily", [(1275,), (None,)]),
        ("SoFar", [(5 * n + 1200 * (n >= 5),) for n in range(1, 16)]),
    ],
)
def test_the_classes_of_the_page_give_rows(name: str, rows: list[Any]) -> None:
    (block,) = [
        block.text
        for block in Document(ROOT / "docs" / "state.md").blocks()
        if block.language == "python" and "onceflow.windows" in block.text
    ]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block, "state.md", "exec"), names)
    columns = "card string, shop string, amount decimal(10,2), at timestamp"
    harness = ProcessorHarness(names[name], columns, event_time="at")
    for minute in range(15):
        amount = Decimal(1205 if minute == 4 else 5)
        at = START + timedelta(minutes=minute)
        harness.send({"card": "a", "shop": "x", "amount": amount, "at": at})
    harness.advance(START + timedelta(days=3))
    assert [tuple(row.values())[3:] for row in harness.rows] == rows
