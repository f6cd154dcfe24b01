"""What every test of faults has: dice of its own, and one line that repeats its failure."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

import pytest

from tests.conftest import SEED
from tests.faults.sweep.recording import repeat_command


@pytest.fixture
def dice(random: Random) -> Random:
    """The same for the same seed and test: `ONCEFLOW_TEST_SEED` sets the seed of a run."""
    return random


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        seed = item.config.stash[SEED]
        report.sections.append(("again", repeat_command(item.nodeid, seed)))
    return report
