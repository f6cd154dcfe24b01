"""The stage of these tests: each runs in memory, and again on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.mutants.stage import FakeConnector, FakeWorld, RealWorld, Stage, World


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say which cases need the broker, for the report: the world asks for it only as it runs."""
    if isinstance(item, pytest.Function) and "[broker" in item.name:
        item.fixturenames = [*item.fixturenames, "broker"]  # the list is that of all cases


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    """The Kafka in memory, which every driver of the test will use."""
    world = FakeWorld()
    connector = FakeConnector(world.kafka)
    monkeypatch.setattr("tests.support.drivers.driver.find_connector", lambda _: connector)
    return world


@pytest.fixture(params=["memory", "broker"])
def world(request: pytest.FixtureRequest) -> World:
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, FakeWorld) else RealWorld(found.bootstrap_servers)


@pytest.fixture
def stage(world: World) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(world, f"p-{uuid.uuid4().hex[:8]}", stack)
