"""A plugin of pytest that runs inside a copy: proves that it tests the copy, and tells what it saw.

It is loaded by `trial.py` into another process and shares nothing else with it.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

OUTCOMES_VARIABLE = "ONCEFLOW_TEST_MUTANT_OUTCOMES"
"""File that one JSON line is added to for each phase of each test."""
PACKAGES = ("onceflow", "onceflow_connectors")
LINES_SHOWN = 4
PROFILE = "mutants"
hypothesis.settings.register_profile(
    PROFILE,
    deadline=None,
    database=None,
    # Any failure will do: the smallest is not looked for.
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test anything but the copy."""
    for name in PACKAGES:
        place = importlib.import_module(name).__file__ or ""
        if not Path(place).is_relative_to(config.rootpath):
            raise pytest.UsageError(f"{name} is {place}, not the copy's in {config.rootpath}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the phase of a test, and what ended it."""
    report = yield
    line = {
        "test": item.nodeid,
        "phase": report.when,
        "is_failed": report.failed,
        "error": call.excinfo.typename if call.excinfo else "",
        "says": _last_lines(report.longreprtext) if report.failed else [],
    }
    with Path(os.environ[OUTCOMES_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return report


def _last_lines(text: str) -> list[str]:
    """From the line that failed, which pytest marks with a >."""
    lines = [line for line in text.splitlines() if line.strip()]
    failed = [number for number, line in enumerate(lines) if line.startswith(">")]
    shown = lines[failed[-1] :] if failed else lines[-LINES_SHOWN:]
    return [line.removeprefix("E").strip() for line in shown[:LINES_SHOWN]]
