"""Shares one fixture: the line that repeats a failure."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.conftest import SEED
from tests.faults.sweep.recording import repeat_command


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        seed = item.config.stash[SEED]
        report.sections.append(("again", repeat_command(item.nodeid, seed)))
    return report
