"""The page about faults says what the results say, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.faults.matrix import ROWS
from tests.faults.sweep.collect import Findings, Played, collect
from tests.faults.sweep.page import DATA, PAGE, current, render, seen
from tests.faults.sweep.page_figures import mutant_lines, storm_lines
from tests.faults.sweep.results import Outcome, Result, What

TEST = ROWS[0].tests[0]


def result(name: str = TEST, seed: int = 1, outcome: Outcome = Outcome.PASSED) -> Result:
    return Result(What.TEST, name, seed, "abc", outcome, 1.0, f"again {name} {seed}")


def part(what: What, figures: dict[str, Any], outcome: Outcome = Outcome.PASSED) -> Result:
    return Result(what, "all", 1, "abc", outcome, 1.0, "again --folder /x/y --seed 1", "", figures)


STORM = {
    "seconds": 60.0,
    "every_s": 20.0,
    "rate": 500,
    "verdict": {
        "anomalies": [],
        "records": 30_000,
        "lost_records": 0,
        "repeated_records": 0,
        "input_repeats": 2,
        "input_missing": 0,
        "rows": 900,
        "batches": 200,
        "fired": {"refuse": 2, "kill-driver": 3},
        "not_fired": [],
        "starts": 4,
        "ends": {"-9": 3, "0": 1},
        "visible": {"rows": 900, "median_ms": 700.0, "worst_ms": 21_300.0},
        "visible_in_quiet": None,
    },
}


def row_of(page: str, row_id: str) -> str:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row_id} |")]
    return line


def test_the_page_is_what_its_data_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == current()


def test_the_data_have_no_place_of_a_machine() -> None:
    failure = {"test": f"{TEST}[a]", "says": ["/home/jane/clone/a.py:3: AssertionError"]}
    green = {"test": f"{TEST}[b]", "says": None}
    line = {"mutant": "m", "what": "w", "verdict": "caught", "tests": [failure, green]}
    findings = collect([part(What.MUTANTS, {"lines": [{"unchanged": []}, line]})])

    assert "jane" not in findings.to_json()
    (told,) = [row for row in mutant_lines(findings.of_kind(What.MUTANTS)) if "| w |" in row]
    assert "[a]" in told
    assert "[b]" not in told
    assert not re.search(r"/(?:home|root|tmp|work|Users)/", DATA.read_text(encoding="utf-8"))


def test_without_results_nothing_is_said_to_have_passed() -> None:
    page = render(Findings())

    for row in ROWS:
        assert "| not run | 0 | - |" in row_of(page, row.row_id)
    assert "as demanded |" not in page
    assert "<!--" not in page
    for title in ("What was tested", "An hour of random faults", "Under load", "Recovery"):
        section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
        assert "not run" in section


@pytest.mark.parametrize(
    ("played", "said"),
    [
        ([Played()], "not run"),
        ([Played(), Played()], "not run"),
        ([Played(3, 3, [1, 2, 3]), Played()], "as demanded, 1 of 2 tests not run"),
        ([Played(3, 3, [1, 2, 3]), Played(1, 1, [1])], "as demanded"),
        ([Played(3, 2, [1, 2, 3]), Played()], "**1 failed**"),
    ],
)
def test_a_row_is_as_demanded_only_if_all_of_it_ran_and_passed(
    played: list[Played], said: str
) -> None:
    assert seen(played) == said


def test_a_failure_is_shown_with_what_repeats_it() -> None:
    findings = collect([result(f"{TEST}[a]"), result(f"{TEST}[b]", 2, Outcome.FAILED)])
    page = render(findings)

    assert "| **1 failed** | 2 | 1-2 |" in row_of(page, ROWS[0].row_id)
    assert f"`again {TEST}[b] 2`" in page


def test_a_storm_is_shown_with_all_its_figures() -> None:
    findings = collect([part(What.STORM, STORM)])
    page = render(findings)

    assert "| input records | 30,000 |" in page
    assert "| faults that fired | 5: refuse 2, kill-driver 3 |" in page
    assert "| from a window's end to its row, at all times | median 0.7 s, worst 21.3 s |" in page
    assert "| repeats, losses in the input itself | 2, 0 |" in page
    assert ": clean." in page
    assert "Again: `again --seed 1`" in page


@pytest.mark.parametrize("figures", [{}, STORM])
def test_a_storm_that_failed_is_never_called_clean(figures: dict[str, Any]) -> None:
    parts = collect([part(What.STORM, figures, Outcome.FAILED)]).of_kind(What.STORM)
    text = "\n".join(storm_lines(parts))

    assert ": clean" not in text
    assert "no result" in text or "NOT CLEAN" in text
