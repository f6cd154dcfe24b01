"""Fixtures for tests of the whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import _closed_attempts
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.service_container import folder_of_the_user
from tests.support.jobs.contained import prepared
from tests.support.jobs.views import ViewsJob

__all__ = ["_closed_attempts"]


@pytest.fixture
def job(broker: RunningBroker) -> Iterator[ViewsJob]:
    """With input, in a folder that a container may write."""
    with folder_of_the_user() as folder:
        yield prepared(ViewsJob(broker.bootstrap_servers, folder))
