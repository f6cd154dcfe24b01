"""State over the control API and on the page, while the query runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onceflow.control.showing import MASK
from onceflow.ports import Control
from tests.support.pipelines import pipeline_text
from tests.support.sites.control import Site, answered
from tests.support.states import LAST, running, windows

STATE = "/v1/pipelines/views/state"


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("state") / "checkpoint"
    with running(windows(spark), folder):
        yield folder


@pytest.fixture
def reader(site: Site, checkpoint: Path) -> Iterator[Any]:
    """Answers of the API to a user who may read."""
    (site.folder / "views.yaml").write_text(pipeline_text() + f"checkpoint: {checkpoint}\n")
    columns = ["views.page", "views.count"]
    site.service.settings = site.service.settings.model_copy(
        update={"control": Control(tokens_file="unused", shown_columns=columns)}
    )
    with answered(site) as callers, callers.by(site.reader) as client:
        yield client.get


def test_what_has_state_is_listed(reader: Any) -> None:
    (operator,) = reader(STATE).json()
    assert (operator["name"], operator["partitions"]) == ("aggregation", 2)
    assert operator["last_batch"] >= LAST


def test_a_key_is_looked_up_as_of_a_batch_and_only_named_columns_are_shown(reader: Any) -> None:
    query = {"key": ["page=3"], "batch": LAST, "max": 2}
    answer = reader(f"{STATE}/aggregation", params=query).json()
    assert (answer["operator"], answer["batch"], len(answer["rows"])) == ("aggregation", LAST, 2)
    for row in answer["rows"]:
        assert row["key"] == {"window": MASK, "page": "3"}
        assert row["value"]["sum"] == MASK
        assert row["value"]["count"] > 0
    assert reader(f"{STATE}/aggregation", params={"key": "page=3"}).json()["batch"] >= LAST


@pytest.mark.parametrize(
    ("path", "query", "status", "told"),
    [
        ("nothing", {}, 409, "expected one of aggregation (0)"),
        ("aggregation", {"key": "pag=3"}, 409, "Did you mean `page`?"),
        ("aggregation", {"key": ["page=3", "page=4"]}, 409, "once for each column"),
        ("aggregation", {"batch": 4_000}, 409, "expected one from 0 to"),
        ("aggregation", {"batch": -1}, 422, "greater than or equal to 0"),
        ("aggregation", {"max": 100_000}, 422, "less than or equal to 1000"),
        ("aggregation", {"key": ["page=3"] * 51}, 422, "at most 50 items"),
    ],
)
def test_a_wrong_question_is_told_what_there_is(
    reader: Any, path: str, query: Any, status: int, told: str
) -> None:
    answer = reader(f"{STATE}/{path}", params=query)
    assert answer.status_code == status
    assert told in answer.text


def test_the_page_lists_state(site: Site, reader: Any) -> None:
    with answered(site) as callers, callers.by(None) as client:
        client.post("/sign-in", data={"token": site.reader})
        page = client.get("/pipelines/views").text
    assert "aggregation" in page
    assert "window.start timestamp" in page
