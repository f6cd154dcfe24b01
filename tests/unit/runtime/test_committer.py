"""The committer's error for a batch that it could not write, on the Kafka in memory."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from onceflow.errors import DeadlineError
from tests.faults.mutants.stage import VALUES, FakeConnector, FakeWorld, Stage


def test_a_batch_that_needs_longer_than_its_budget_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeWorld()
    connector = FakeConnector(world.kafka)
    monkeypatch.setattr("tests.support.drivers.driver.find_connector", lambda _: connector)
    with ExitStack() as stack:
        stage = Stage(world, "slow", stack)
        driver = stage.driver(transaction_timeout_s=7.0)
        driver.take_over()
        world.kafka.is_queue_full = True
        with pytest.raises(DeadlineError) as caught:
            driver.commit(0, VALUES)
        assert "batch 0" in caught.value.then
        assert "transaction_timeout (7 s)" in caught.value.then
        world.kafka.is_queue_full = False
        driver.commit(0, VALUES)
        stage.check(batches=1)
