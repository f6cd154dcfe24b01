"""Why a gateway does not take posts: each cause from facts alone, with its evidence and cure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceflow.contracts.connector import OpenTransaction
from onceflow.gateway.diagnosis import GatewayCause, diagnose
from onceflow.gateway.model import Gateway
from onceflow.gateway.survey import GatewayFacts, Said, fields_of
from onceflow.observe.facts import InputFacts
from onceflow_connectors.kafka.gateway.owners import Owner

HERE, THERE = "http://here:9466", "http://there:9466"
GATEWAY = Gateway.model_validate(
    {"apiVersion": "onceflow/v1", "kind": "gateway", "name": "door", "topics": {"views": {}}}
)
KEYS = InputFacts("door", "onceflow.gateway.door.keys", 0, 500, 500, 500)
HUNG = OpenTransaction(
    transactional_id="onceflow-gateway.door.s0.l1",
    producer_id=1,
    producer_epoch=2,
    topic=KEYS.topic,
    partition=0,
    start_offset=500,
    started_ms=0,
    timeout_ms=30_000,
    coordinator=1,
)
WELL = GatewayFacts(
    at_ms=1_000_000,
    gateway=GATEWAY,
    instances=2,
    owners={0: Owner("a", HERE), 1: Owner("b", THERE)},
    said={HERE: Said(), THERE: Said()},
    keys=[KEYS],
)
CASES: dict[GatewayCause, tuple[dict[str, Any], str]] = {
    GatewayCause.TOPICS_MISSING: ({"missing": ["views"]}, "there is no topic views"),
    GatewayCause.BROKERS_REFUSE: ({"short": {"views": (1, 2)}}, "1 replicas in sync"),
    GatewayCause.STOPPED: ({"instances": 0}, "no instance has joined"),
    GatewayCause.UNREACHABLE: (
        {"said": {HERE: Said(), THERE: Said(failure="no route")}},
        "no route",
    ),
    GatewayCause.UNOWNED: (
        {"owners": {0: Owner("a", HERE), 1: None}, "said": {HERE: Said()}},
        "1 of 2 slots have an owner",
    ),
    GatewayCause.HUNG_TRANSACTION: (
        {"keys": [replace(KEYS, high_watermark=510)], "transactions": [HUNG]},
        "transactional id onceflow-gateway.door.s0.l1",
    ),
    GatewayCause.NOT_READY: (
        {"said": {HERE: Said(), THERE: Said(waits_for="owners of slots 1")}},
        "it waits for owners of slots 1",
    ),
    GatewayCause.REFUSED: (
        {"said": {HERE: Said(refused={401: 7}), THERE: Said(refused={401: 1})}},
        "answered so in the last minutes: 8 (Unauthorized)",
    ),
    GatewayCause.NO_SLOT_FREE: ({"instances": 3}, "3 instances share 2 slots"),
}


def test_nothing_holds_up_what_is_well() -> None:
    assert diagnose(WELL) == []
    assert WELL.waiting == "2 of 2 slots have an owner"
    assert fields_of(WELL)["not_ready"] == {}


@pytest.mark.parametrize("cause", GatewayCause)
def test_each_cause_alone(cause: GatewayCause) -> None:
    facts, evidence = CASES[cause]
    [found] = diagnose(replace(WELL, **facts))
    assert found.cause is cause
    assert evidence in " ".join(found.evidence)
    assert found.cure


def test_one_that_never_ran_is_not_running_and_nothing_else() -> None:
    facts = GatewayFacts(at_ms=0, gateway=GATEWAY, has_run=False, instances=0)
    assert [found.cause for found in diagnose(facts)] == [GatewayCause.STOPPED]


@pytest.mark.parametrize(
    "status", [400, 401, 403, 404, 408, 409, 413, 415, 418, 422, 429, 500, 503]
)
def test_every_refusal_has_a_cure(status: int) -> None:
    facts = replace(WELL, said={HERE: Said(refused={status: 1}), THERE: Said()})
    [found] = diagnose(facts)
    assert f"answered {status}" in found.what
