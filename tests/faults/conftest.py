"""Shares the job with state that a fault is played on, and the line that repeats a failure."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

import pytest

from tests.conftest import SEED
from tests.faults.sweep.recording import repeat_command
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.views import ViewsJob


@pytest.fixture
def stateful(random: Random) -> type[ViewsJob | CardsJob]:
    """Windows of SQL, or a processor: the seed decides, and a sweep over seeds plays both."""
    return random.choice((ViewsJob, CardsJob))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        seed = item.config.stash[SEED]
        report.sections.append(("again", repeat_command(item.nodeid, seed)))
    return report
