"""The pure parts of the sweep: what is kept, what is not run again, what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.sweep.__main__ import summary
from tests.faults.sweep.frozen import Code
from tests.faults.sweep.recording import repeat_command
from tests.faults.sweep.recovery.figures import Recovery, longest_block, summarise
from tests.faults.sweep.results import Outcome, Result, What, append, read
from tests.faults.sweep.runs import Runs
from tests.support.clock import ManualClock

CODE = Code("0123456789")


@pytest.fixture(autouse=True)
def code_as_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep asks git, which not every machine has that runs these tests."""
    monkeypatch.setattr("tests.faults.sweep.runs.current_code", lambda: CODE)


def result(
    name: str, seed: int = 1, outcome: Outcome = Outcome.PASSED, code: str | None = None
) -> Result:
    return Result(
        What.TEST, name, seed, code or str(CODE), outcome, 1.5, repeat_command(name, seed)
    )


def test_a_line_that_a_kill_cut_off_is_as_if_never_run(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    append(file, result("a"))
    append(file, result("b"))
    file.write_bytes(file.read_bytes()[:-20])
    append(file, result("c"))

    assert [each.name for each in read(file)] == ["a", "c"]


def test_a_resumed_sweep_runs_what_has_no_result_for_this_code_and_seed(tmp_path: Path) -> None:
    runs = Runs(tmp_path, ManualClock())
    append(runs.file, result("a", seed=1))
    append(runs.file, result("b", seed=2))
    append(runs.file, result("c", seed=1, code="other"))

    assert runs.missing(["a", "b", "c"], 1) == ["b", "c"]
    assert runs.missing(["a", "b", "c"], 2) == ["a", "c"]


def test_a_failure_and_a_missing_result_both_end_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = [result("a::b", 7, Outcome.FAILED)]

    assert summary([], [], 3) == 0
    assert summary([], ["the storm"], 3) == 1
    assert summary(failed, [], 3) == 1
    told = capsys.readouterr().out
    assert "NOT RUN the storm" in told
    assert "ONCEFLOW_TEST_SEED=7 .venv/bin/pytest 'a::b'" in told


def test_a_recovery_is_split_into_its_steps() -> None:
    recovery = Recovery(1_000, 7_000, 9_500, 12_000, 12_250, 3_000, 1.0)

    assert recovery.seconds() == {
        "claim and fence": 6.0,
        "Spark and the plan": 2.5,
        "first batch": 2.5,
        "to the reader": 0.25,
        "kill to visible": 11.25,
        "readers blocked": 3.0,
    }
    assert summarise([recovery])["kill to visible"].worst_s == 11.25
    assert summarise([]) == {}


@pytest.mark.parametrize(
    ("probes", "blocked_ms"),
    [
        ([(0, False), (200, False)], 0),
        ([(90, True), (150, True), (180, False)], 80),
        ([(120, True), (140, False), (150, True), (190, False)], 40),
        ([(120, True), (180, True)], 80),
        ([(10, True), (50, False), (300, True), (400, False)], 0),
    ],
)
def test_readers_are_blocked_as_long_as_the_stable_offset_is_behind(
    probes: list[tuple[int, bool]], blocked_ms: int
) -> None:
    assert longest_block(probes, 100, 200) == blocked_ms
