"""The examples of docs/state.md."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from onceflow.processing import ProcessorHarness
from tests.support.documents.markdown import ROOT, Document


def test_the_examples_of_aggregates_run() -> None:
    blocks = [
        block.text
        for block in Document(ROOT / "docs" / "state.md").blocks()
        if block.language == "python"
        and "onceflow.aggregates" in block.text
        and "onceflow.windows" not in block.text
    ]
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, "state.md", "exec"), names)
    names["test_gcd_keeps_the_laws"]()
    harness = ProcessorHarness(
        names["Totals"],
        "card string, shop string, amount decimal(10,2), at timestamp",
        event_time="at",
    )
    payment = {
        "card": "a",
        "shop": "x",
        "amount": Decimal(2),
        "at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    rows = harness.send(payment, {**payment, "shop": "y"})
    assert rows == [{"card": "a", "total": Decimal("4.00"), "shop": "y"}]
