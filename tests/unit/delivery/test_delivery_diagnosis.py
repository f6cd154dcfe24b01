"""Causes that hold a delivery up, from facts that a test writes down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onceflow.contracts.connector import OpenTransaction
from onceflow.delivery.diagnosis import DeliveryCause, diagnose
from onceflow.delivery.loader import load_delivery
from onceflow.delivery.survey import DeliveryFacts, fields_of
from onceflow.errors import ConfigError, Fault, RetriableError
from onceflow.observe.facts import InputFacts
from onceflow.observe.retention import Forecast
from tests.support.pipelines import NOW_MS

FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: views-to-postgres
from:
  topics: [page-views]
  schema: "page STRING, views BIGINT"
to:
  postgres: {dsn_file: dsn, table: page_views, mode: append}
"""
HOUR_MS = 3_600_000


@pytest.fixture
def well(tmp_path: Path) -> DeliveryFacts:
    """It runs, gets on, and has delivered all but 10 records."""
    file = tmp_path / "delivery.yaml"
    file.write_text(FILE)
    return DeliveryFacts(
        at_ms=NOW_MS,
        carriage=load_delivery(file).delivery,
        inputs=[partition(0, position=90)],
        instances=1,
        arrivals_per_s=5.0,
        delivered_per_s=5.0,
    )


def partition(number: int, position: int, end: int = 100, **more: Any) -> InputFacts:
    given = {"high_watermark": end, "newest_ms": NOW_MS - 1_000, **more}
    return InputFacts("views-to-postgres", "page-views", number, position, end, **given)


def test_nothing_holds_up_a_delivery_that_gets_on(well: DeliveryFacts) -> None:
    assert diagnose(well) == []
    assert well.waiting == "10 records wait"


@pytest.mark.parametrize(
    ("changes", "cause", "told"),
    [
        (
            {"failure": ConfigError("x", faults=(Fault("there is no table `views`"),))},
            DeliveryCause.TARGET_REFUSES,
            "there is no table `views`",
        ),
        (
            {"failure": RetriableError("the server does not answer", subject="PostgreSQL")},
            DeliveryCause.TARGET_DOWN,
            "the server does not answer",
        ),
        (
            {"forecasts": [Forecast(("page-views", 0), 3_600, "retention.ms", 0.1)]},
            DeliveryCause.RETENTION,
            "retention.ms overtakes page-views-0 in 60 min",
        ),
        (
            {"forecasts": [Forecast(("page-views", 0), 0, "retention", 0.0)]},
            DeliveryCause.RETENTION,
            "retention has overtaken page-views-0",
        ),
        ({"instances": 0}, DeliveryCause.STOPPED, "onceflow-delivery-views-to-postgres"),
        ({"delivered_per_s": 0.0}, DeliveryCause.STUCK, "from offset 90"),
        (
            {"inputs": [partition(0, 90), partition(1, 0, 5_000)], "arrivals_per_s": 2.0},
            DeliveryCause.LAG,
            "5,010 records wait, most in page-views-1: 5,000",
        ),
        (
            {
                "inputs": [partition(0, 100, newest_ms=NOW_MS - HOUR_MS)],
                "arrivals_per_s": 0.0,
                "delivered_per_s": 0.0,
            },
            DeliveryCause.NO_INPUT,
            "is 60 min old",
        ),
    ],
)
def test_each_cause_is_named_with_its_evidence(
    well: DeliveryFacts, changes: dict[str, Any], cause: DeliveryCause, told: str
) -> None:
    [finding] = diagnose(replace(well, **changes))
    assert finding.cause is cause
    assert told in " ".join(finding.evidence)
    assert finding.cure


def test_a_transaction_that_hangs_is_named_with_its_producer(well: DeliveryFacts) -> None:
    held = partition(0, 100, high_watermark=140, undecided_ms=NOW_MS - 60_000)
    holder = OpenTransaction("page-views", 0, 100, "slow", 7, 1, NOW_MS - 60_000, 900_000, 2)
    stuck = replace(well, inputs=[held], transactions=[holder], delivered_per_s=0.0)
    [finding] = diagnose(stuck)
    assert finding.cause is DeliveryCause.HUNG_TRANSACTION
    assert "transactional id slow" in finding.evidence[1]


def test_the_most_serious_cause_comes_first(well: DeliveryFacts) -> None:
    down = replace(well, failure=RetriableError("down"), inputs=(), instances=0)
    assert [each.cause for each in diagnose(down)] == [
        DeliveryCause.TARGET_DOWN,
        DeliveryCause.STOPPED,
    ]


def test_what_cannot_be_seen_is_not_known(well: DeliveryFacts) -> None:
    blind = replace(well, inputs=(), instances=None, blind={"positions": "they are in the target"})
    fields = fields_of(blind)
    assert (fields["lag"], fields["instances"], fields["target"]) == (None, None, "well")
    assert fields["not_seen"] == {"positions": "they are in the target"}
    assert blind.waiting == "it is unknown how many records wait"
