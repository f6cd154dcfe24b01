"""What `consume` says, and what it refuses."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from onceflow.cli.consume import summary_text
from onceflow.cli.main import build_app
from onceflow.errors import ConfigError

SUMMARY = {
    "topic": "views",
    "records": 4,
    "repeats_discarded": 0,
    "gaps": 0,
    "divergences": 0,
    "foreign": 0,
    "new_lineages": 0,
    "ledger": "agrees",
}


def test_the_summary_names_only_what_was_found() -> None:
    told = summary_text(SUMMARY)
    assert told == "views: 4 records, 0 repeats discarded, 0 gaps; ledger: agrees"
    told = summary_text({**SUMMARY, "foreign": 2, "new_lineages": 1})
    assert "2 records of other writers, 1 restarts without a ledger; ledger" in told


@pytest.mark.parametrize("limit", [("--max", "1"), ("--timeout", "1")])
def test_a_verification_has_no_limits(limit: tuple[str, str]) -> None:
    done = CliRunner().invoke(build_app(), ["consume", "views", "--verify", *limit])
    assert isinstance(done.exception, ConfigError)
    assert "--verify reads the whole topic" in str(done.exception)
