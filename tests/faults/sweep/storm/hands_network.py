"""Causes faults on the way between the service and the brokers, in a proxy. Each has to fire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from onceflow.devkit.broker_start import answers
from onceflow.errors import DeadlineError
from tests.chaos import Rule
from tests.faults.sweep.storm.draw import Fault
from tests.faults.sweep.storm.hands import Hand, NotFiredError, Proof, Stage, require

FIRE_TIMEOUT_S = 60.0
"""A transaction begins several times a second, unless the service is just being started."""
OF_A_TRANSACTION = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)
REFUSALS = (
    ("InitProducerId", "NOT_COORDINATOR"),
    ("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS"),
    ("Produce", "NOT_LEADER_FOR_PARTITION"),
    ("Produce", "NOT_ENOUGH_REPLICAS"),
    ("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
    ("EndTxn", "UNKNOWN"),
    ("EndTxn", "PRODUCER_FENCED"),
)
"""What was asked for has been done, and the answer says otherwise; the last lies outright."""
SLOW_BYTES_PER_S = 50_000


def lose_answer(stage: Stage, fault: Fault) -> Proof:
    api = _pick(OF_A_TRANSACTION, fault)
    return _once(
        stage,
        Rule(api=api, on="response", action=_lost(fault), times=1, transactional_id=_lanes(stage)),
    )


def lose_commit_answer(stage: Stage, fault: Fault) -> Proof:
    return _once(
        stage,
        Rule(
            api="EndTxn",
            on="response",
            action=_lost(fault),
            times=1,
            transactional_id=_lanes(stage),
        ),
    )


def lose_request(stage: Stage, fault: Fault) -> Proof:
    api = _pick(OF_A_TRANSACTION, fault)
    return _once(
        stage, Rule(api=api, on="request", action="drop", times=1, transactional_id=_lanes(stage))
    )


def repeat_request(stage: Stage, fault: Fault) -> Proof:
    api = _pick(OF_A_TRANSACTION, fault)
    return _once(
        stage,
        Rule(api=api, on="request", action="duplicate", times=3, transactional_id=_lanes(stage)),
    )


def refuse(stage: Stage, fault: Fault) -> Proof:
    api, error = REFUSALS[int(fault.pick * len(REFUSALS))]
    rule = Rule(
        api=api, on="response", action="error", error=error, times=1, transactional_id=_lanes(stage)
    )
    return _once(stage, rule)


def delay_answers(stage: Stage, fault: Fault) -> Proof:
    api, delay_ms = _pick(OF_A_TRANSACTION, fault), int(fault.hold_s * 1000)
    rule = Rule(
        api=api,
        on="response",
        action="delay",
        delay_ms=delay_ms,
        times=3,
        transactional_id=_lanes(stage),
    )
    return _once(stage, rule)


def hold_commit(stage: Stage, fault: Fault) -> Proof:
    """KAFKA-17754: a request to commit arrives when its lane is in later transactions."""
    rule = Rule(api="EndTxn", on="request", action="hold", times=1, transactional_id=_lanes(stage))
    return _lasting(stage, fault, rule)


def slow_link(stage: Stage, fault: Fault) -> Proof:
    rule = Rule(on="response", action="slow", bytes_per_s=SLOW_BYTES_PER_S)
    return _lasting(stage, fault, rule)


def cut_broker(stage: Stage, fault: Fault) -> Proof:
    """The service alone does not reach one broker; silently, if the fault is a hard one."""
    addresses = stage.proxy.bootstrap_servers.split(",")
    number = int(fault.pick * len(addresses))
    broker = stage.cluster.brokers[number]
    stage.proxy.cut(broker=broker.node_id, is_silent=fault.is_hard)
    try:
        is_cut = not answers(addresses[number], 1)
        stage.clock.sleep(fault.hold_s)
    finally:
        stage.proxy.heal()
    require(is_cut, "it was still reached")
    return {"broker": broker.node_id, "silently": fault.is_hard, "for_s": fault.hold_s}


def _once(stage: Stage, rule: Rule) -> Proof:
    return _fired(stage, rule, lambda: None)


def _lasting(stage: Stage, fault: Fault, rule: Rule) -> Proof:
    return _fired(stage, rule, lambda: stage.clock.sleep(fault.hold_s))


def _fired(stage: Stage, rule: Rule, meanwhile: Callable[[], None]) -> Proof:
    running = stage.proxy.add(rule)
    try:
        running.wait_fired(1, timeout_s=FIRE_TIMEOUT_S)
        meanwhile()
    except DeadlineError as error:
        raise NotFiredError(str(error)) from error
    finally:
        running.remove()
    what = f"{rule.api or 'any'} {rule.on}: {rule.action} {rule.error or ''}".strip()
    return {"what": what, "times": running.fired}


def _lanes(stage: Stage) -> str:
    return f"onceflow.{stage.names.pipeline}.s*"


def _lost(fault: Fault) -> Literal["close", "drop"]:
    """With its connection, or in silence."""
    return "close" if fault.is_hard else "drop"


def _pick(names: Sequence[str], fault: Fault) -> str:
    return names[int(fault.pick * len(names))]


NETWORK_HANDS: Mapping[str, Hand] = {
    "lose-answer": lose_answer,
    "lose-commit-answer": lose_commit_answer,
    "lose-request": lose_request,
    "repeat-request": repeat_request,
    "refuse": refuse,
    "delay-answers": delay_answers,
    "hold-commit": hold_commit,
    "slow-link": slow_link,
    "cut-broker": cut_broker,
}
