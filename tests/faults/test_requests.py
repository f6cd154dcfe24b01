"""Requests and answers of a transaction that are lost, late, repeated or refused on their way.

A proxy between the product and a real broker does it to one request of a batch, then the driver has
to go on by itself. What is written is read back past the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from random import Random

import pytest

from onceflow.errors import DeadlineError, OutcomeUnknownError
from tests.chaos import ChaosProxy, Rule, RunningRule
from tests.chaos.rules import Action, Side
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.faulty import Faults
from tests.support.drivers.stage import BUDGET_S, VALUES, Stage, open_stage
from tests.support.everything import some

DELAY_MS = 1_500
LOOKS_FOR_A_COORDINATOR = 3
"""Of librdkafka, for a group's; then it waits."""

OF_A_TRANSACTION = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)
"""In the order in which a transaction needs them."""
REFUSALS = {
    "InitProducerId": (
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "AddPartitionsToTxn": (
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_NOT_AVAILABLE",
        "INVALID_PRODUCER_EPOCH",
    ),
    "Produce": (
        "NOT_LEADER_FOR_PARTITION",
        "NOT_ENOUGH_REPLICAS",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
    ),
    "AddOffsetsToTxn": ("NOT_COORDINATOR",),
    "TxnOffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "FENCED_INSTANCE_ID"),
    "EndTxn": (
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "UNKNOWN",
        "INVALID_TXN_STATE",
        "PRODUCER_FENCED",
    ),
}
"""Errors that a broker may answer with although this driver is alone; the last even lies."""


@pytest.fixture
def proxy(broker: RunningBroker) -> Iterator[ChaosProxy]:
    with ChaosProxy(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
def stage(broker: RunningBroker, proxy: ChaosProxy, topic: Callable[[str], str]) -> Iterator[Stage]:
    with open_stage(broker.bootstrap_servers, topic("p"), proxy.bootstrap_servers) as opened:
        yield opened


def play(stage: Stage, proxy: ChaosProxy, *rules: Rule) -> None:
    """A batch, or two, under each rule in turn, all by one driver."""
    driver = stage.hasty_driver()
    driver.take_over()
    driver.commit(0, VALUES)
    batch_id = 1
    for rule in rules:
        active = proxy.add(rule)
        driver.commit(batch_id, VALUES)
        # A lane is initialised after its batch.
        active.wait_fired(1, timeout_s=BUDGET_S)
        driver.commit(batch_id + 1, VALUES)
        active.remove()
        batch_id += 2
    stage.check(batches=batch_id)


def of_lanes(stage: Stage) -> str:
    """Transactional ids that batches are written with, and not the owner's."""
    return f"onceflow.{stage.name}.s*"


def test_one_that_is_lost_or_late_or_repeated(
    stage: Stage, proxy: ChaosProxy, random: Random
) -> None:
    def rule(api: str, on: Side, action: Action, delay_ms: int | None = None) -> Rule:
        return Rule(
            api=api,
            on=on,
            action=action,
            delay_ms=delay_ms,
            times=1,
            transactional_id=of_lanes(stage),
        )

    rules = (
        (
            rule(api, "request", "drop"),
            rule(api, "response", "drop"),
            rule(api, "response", "close"),
            rule(api, "request", "duplicate"),
            rule(api, "response", "delay", DELAY_MS),
        )
        for api in some(OF_A_TRANSACTION, 3, random)
    )
    play(stage, proxy, *chain.from_iterable(rules))


@pytest.mark.parametrize("api", REFUSALS)
def test_a_refusal_in_place_of_an_answer(stage: Stage, proxy: ChaosProxy, api: str) -> None:
    """The broker has done what was asked for; the client is told that it has not."""
    rules = [
        Rule(
            api=api,
            on="response",
            action="error",
            error=error,
            times=1,
            transactional_id=of_lanes(stage),
        )
        for error in REFUSALS[api]
    ]
    play(stage, proxy, *rules)


@pytest.mark.timeout(60)
def test_a_group_coordinator_that_is_not_found_holds_a_driver_until_its_deadline_only(
    stage: Stage, proxy: ChaosProxy
) -> None:
    """librdkafka #5456: the client itself would wait until a connection of it changes."""
    faults = Faults()
    driver = stage.hasty_driver(wrap=faults.wrap, transaction_timeout_s=3.0)
    driver.take_over()
    driver.commit(0, VALUES)
    refusal = Rule(
        api="FindCoordinator",
        on="response",
        action="error",
        error="COORDINATOR_NOT_AVAILABLE",
        times=LOOKS_FOR_A_COORDINATOR,
    )
    refused: list[RunningRule] = []
    faults.before_offsets = lambda: refused.append(proxy.add(refusal))
    driver.commit(1, VALUES)
    assert refused[0].fired == LOOKS_FOR_A_COORDINATOR
    stage.check(batches=2)


def test_a_commit_held_back_into_the_next_transaction_of_its_lane(
    stage: Stage, proxy: ChaosProxy
) -> None:
    """KAFKA-17754. p: 40 rec (EndTxn held) | fence, 40 rec + C | 40 rec, EndTxn arrives | + C"""
    faults = Faults()
    driver = stage.hasty_driver(wrap=faults.wrap)
    driver.take_over()
    held = proxy.add(
        Rule(api="EndTxn", on="request", action="hold", times=1, transactional_id=of_lanes(stage))
    )
    driver.commit(0, VALUES)
    held.wait_fired(1, timeout_s=30)
    faults.before_commit = held.release
    driver.commit(1, VALUES)
    assert faults.fired == ["before_commit"]
    driver.commit(2, VALUES)
    stage.check(batches=3)


def test_records_held_back_beyond_the_abort_of_their_transaction(
    stage: Stage, proxy: ChaosProxy
) -> None:
    """p: (Produce held) abort | fence, 40 rec + C | the old records arrive | 40 rec + C"""
    driver = stage.hasty_driver()
    driver.take_over()
    held = proxy.add(
        Rule(api="Produce", on="request", action="hold", times=1, transactional_id=of_lanes(stage))
    )
    driver.commit(0, VALUES)
    held.wait_fired(1, timeout_s=30)
    held.release()
    driver.commit(1, VALUES)
    stage.check(batches=2)


def test_a_claim_whose_answer_is_lost(stage: Stage, proxy: ChaosProxy) -> None:
    """The claim stands; the start that heard nothing looks, and goes on or is started again."""
    lost = proxy.add(
        Rule(
            api="EndTxn",
            on="response",
            action="drop",
            times=1,
            transactional_id=f"onceflow.{stage.name}.owner",
        )
    )
    driver = stage.hasty_driver()
    driver.take_over()
    lost.wait_fired(1, timeout_s=30)
    driver.commit(0, VALUES)
    stage.check(batches=1)


def test_no_answer_to_any_fence_is_a_start_that_fails_and_says_so(
    stage: Stage, proxy: ChaosProxy
) -> None:
    silent = proxy.add(
        Rule(api="InitProducerId", on="response", action="drop", transactional_id=of_lanes(stage))
    )
    driver = stage.hasty_driver(takeover_timeout_s=5.0)
    with pytest.raises(DeadlineError, match="could not be taken over in time"):
        driver.take_over()
    silent.wait_fired(1, timeout_s=30)
    silent.remove()
    again = stage.hasty_driver()
    again.take_over()
    again.commit(0, VALUES)
    stage.check(batches=1)


@pytest.mark.parametrize("chunk_bytes", [1, 100])
def test_a_stream_in_small_pieces(stage: Stage, proxy: ChaosProxy, chunk_bytes: int) -> None:
    play(stage, proxy, Rule(api=None, on="request", action="split", chunk_bytes=chunk_bytes))


def test_a_slow_link(stage: Stage, proxy: ChaosProxy) -> None:
    play(stage, proxy, Rule(api=None, on="response", action="slow", bytes_per_s=20_000))


def test_a_driver_cut_off_in_mid_transaction_cannot_tell_and_stops(
    stage: Stage, proxy: ChaosProxy
) -> None:
    faults = Faults()
    driver = stage.hasty_driver(wrap=faults.wrap, transaction_timeout_s=3.0, takeover_timeout_s=5.0)
    driver.take_over()
    driver.commit(0, VALUES)
    faults.before_commit = proxy.cut
    with pytest.raises(OutcomeUnknownError):
        driver.commit(1, VALUES)
    assert faults.fired == ["before_commit"]
    proxy.heal()
    successor = stage.hasty_driver()
    successor.take_over()
    successor.commit(1, VALUES)
    stage.check(batches=2)
