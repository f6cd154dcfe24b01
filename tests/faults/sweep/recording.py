"""A plugin of pytest: leaves out what has a result already, and records each test as it ends.

`runs.py` loads it into the processes that play the rows.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.sweep.frozen import current_code
from tests.faults.sweep.results import Outcome, Result, What, append, of_code, read

RESULTS_VARIABLE = "ONCEFLOW_TEST_RESULTS"
"""The file of results; set for the whole process."""
SEED_VARIABLE = "ONCEFLOW_TEST_SEED"
SHOWN_CHARACTERS = 2_000


@dataclass
class _Test:
    outcome: Outcome = Outcome.PASSED
    seconds: float = 0.0
    says: list[str] = field(default_factory=list)


RUNNING = pytest.StashKey[_Test]()


def repeat_command(node_id: str, seed: int) -> str:
    """One line for a shell, at the root of the repository."""
    return f"{SEED_VARIABLE}={seed} .venv/bin/pytest '{node_id}'"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = of_code(read(_file()), str(current_code()))
    done = {result.name for result in known if result.seed == _seed()}
    left_out = [item for item in items if item.nodeid in done]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in done]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    test = item.stash.setdefault(RUNNING, _Test())
    test.seconds += report.duration
    # A skipped test has shown nothing.
    if not report.passed:
        test.outcome = Outcome.FAILED
        test.says.append(report.longreprtext[-SHOWN_CHARACTERS:])
    if report.when == "teardown":
        append(_file(), _result(item.nodeid, test))
    return report


def _result(node_id: str, test: _Test) -> Result:
    return Result(
        what=What.TEST,
        name=node_id,
        seed=_seed(),
        code=str(current_code()),
        outcome=test.outcome,
        seconds=round(test.seconds, 1),
        again=repeat_command(node_id, _seed()),
        says="\n".join(test.says),
    )


def _file() -> Path:
    return Path(os.environ[RESULTS_VARIABLE])


def _seed() -> int:
    return int(os.environ[SEED_VARIABLE])
