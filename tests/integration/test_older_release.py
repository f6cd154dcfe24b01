"""Today's code goes on with a checkpoint that the release before has written, by its own code."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from onceflow.clock import SystemClock
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.runtime.state.reader import opened_state
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import QUICK, engine, finish
from tests.support.drivers.service import END_TIMEOUT_S, started
from tests.support.jobs.cards import CardsJob
from tests.support.jobs.views import ViewsJob
from tests.support.revisions import PACKAGES, packages_of

RELEASE = os.environ.get("ONCEFLOW_TEST_OLDER", "7b20474c1fa81723a3759e617a5cdea2e157bdf7")
"""Revision of this repository."""
PYTHON_READER = "a2ad1a234cd623f102842f6a91b700a2d9fdebfb"
"""The last one in which Python workers read Kafka."""
BATCHES = 2


def code_of(revision: str, folder: Path) -> str:
    """Extract our packages as they were; returns the path by which Python finds them."""
    with packages_of(revision) as archive:
        archive.extractall(folder, filter="data")
    return os.pathsep.join(str(folder / Path(package).parent) for package in PACKAGES)


@pytest.mark.crash
@pytest.mark.parametrize("revision", [RELEASE, PYTHON_READER], ids=["release", "python-reader"])
def test_windows_and_processors_of_an_older_revision_go_on(
    revision: str, broker: RunningBroker, tmp_path: Path
) -> None:
    views = ViewsJob(broker.bootstrap_servers, tmp_path)
    cards = CardsJob(broker.bootstrap_servers, tmp_path)
    views.create_input()
    cards.create_input()
    views.produce(Random(1), records=600, seconds=300)
    cards.produce(Random(2), records=400, seconds=120)
    files = tmp_path / "files"
    files.mkdir()
    of_views = views.write_file(100).rename(files / "views.yaml")
    of_cards = cards.write_file(100).rename(files / "cards.yaml")
    for module in tmp_path.glob("*.py"):
        module.rename(files / module.name)

    older = {"PYTHONPATH": code_of(revision, tmp_path / "older"), "ONCEFLOW_TRANSFORMS": "true"}
    servers = broker.bootstrap_servers
    with started(tmp_path / "run", files, servers, environment=older, command="serve") as service:
        for job in (views, cards):
            # Two pipelines start at once.
            service.wait_for_batches(BATCHES, job.name, 2 * END_TIMEOUT_S)
        service.kill()
    for folder in (views.checkpoint, cards.checkpoint):
        assert (folder / "state").is_dir()
        # The release does not write it.
        assert (folder / "operators.json").exists() == (revision == PYTHON_READER)

    spark = engine().open_session("")
    # In a session, reading state needs what this makes.
    assert not spark.streams.active
    with opened_state(str(views.checkpoint), QUICK, jvm_of(spark)) as reader:
        operator, batch = reader.find("aggregation", None)
        assert batch >= BATCHES - 1
        key = {"page": views.produced[0].page}
        rows = reader.get(operator, key, batch, SystemClock().within(60))
        assert {row["key"]["page"] for row in rows} == {views.produced[0].page}
    views.produce(Random(3), records=100, seconds=60)
    cards.produce(Random(4), records=100, seconds=30)
    finish(views, of_views)
    finish(cards, of_cards)
    assert (views.checkpoint / "operators.json").is_file()
