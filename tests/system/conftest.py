"""Fixtures for tests of the whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.integration.conftest import _closed_attempts
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.service_container import folder_of_the_user
from tests.support.jobs.contained import prepared
from tests.support.jobs.views import ViewsJob
from tests.support.sites.browser import opened_page, running_browser

__all__ = ["_closed_attempts"]


@pytest.fixture
def job(broker: RunningBroker) -> Iterator[ViewsJob]:
    """With input, in a folder that a container may write."""
    with folder_of_the_user() as folder:
        yield prepared(ViewsJob(broker.bootstrap_servers, folder))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    with opened_page(browser, request.param) as page:
        yield page
