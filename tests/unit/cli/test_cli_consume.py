"""`consume`: its output and its refusals."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.cli.operate.ledger import summary_lines
from onceflow.errors import ConfigError
from onceflow.repair.verification import Disagreement, Verification


def told(found: Verification, printed: str = "") -> list[str]:
    return [*summary_lines(found, printed)]


def test_the_summary_names_only_what_was_found() -> None:
    agrees = Verification(records=4, batches=2)
    assert told(agrees, "views") == [
        "views: 4 records, 0 repeats discarded, 0 gaps; ledger: agrees"
    ]
    assert told(agrees) == ["4 records and 2 batches compared"]
    more = Verification(records=5, foreign=2, repeats=1, findings=[Disagreement("a", "b", "c")])
    assert told(more, "views") == [
        "views: 6 records, 1 repeats discarded, 0 gaps; ledger: disagrees",
        "  2 records are of other writers",
        "  1 records are repeats, which readers discard",
    ]


@pytest.mark.parametrize("limit", [("--max", "1"), ("--timeout", "1")])
def test_a_verification_has_no_limits(limit: tuple[str, str]) -> None:
    done = CliRunner().invoke(build_app(), ["consume", "views", "--verify", *limit])
    assert isinstance(done.exception, ConfigError)
    assert "--verify reads the whole topic" in str(done.exception)
