"""A source that cannot be read again is refused wherever `delivery` would need that."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from onceflow.app import Application, RunOptions
from onceflow.contracts.connector import Connection, Connector, find_connector
from onceflow.contracts.source import Capabilities, SourceSpec
from onceflow.errors import ConfigError
from onceflow.pipeline.loader import PipelineFile
from onceflow.pipeline.promises import replay_of, source_faults
from onceflow.pipeline.waivers import CheckpointWaiver
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.guarantee import Replay
from onceflow.run import Surroundings
from onceflow.runtime.session import SessionSettings
from tests.support.clock import ManualClock
from tests.support.pipelines import pipeline_text, write_pipeline

ALL = Capabilities(is_replayable=True, has_stable_ranges=True, is_ordered=True)
NONE = Capabilities(is_replayable=False, has_stable_ranges=False, is_ordered=False)


class Gateway:
    """A connector of which nothing but its source's promises is asked."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities

    def source(self, spec: SourceSpec, connection: Connection) -> Any:
        return type("Source", (), {"capabilities": self._capabilities})()


def connector(capabilities: Capabilities) -> Connector:
    return cast("Connector", Gateway(capabilities))


def _silent(kind: str, /, **facts: object) -> None:
    """Nobody is told."""


def file_of(folder: Path, delivery: Delivery) -> PipelineFile:
    text = pipeline_text().replace("name: views", f"name: views\ndelivery: {delivery.value}")
    return write_pipeline(folder, text)


NOT_FOR_REPLAYS = {"tells_silence"}


@pytest.mark.parametrize(
    "missing", sorted({f.name for f in fields(Capabilities)} - NOT_FOR_REPLAYS)
)
def test_a_replay_needs_every_promise(missing: str) -> None:
    promises = {field.name: field.name != missing for field in fields(Capabilities)}
    assert replay_of(Capabilities(**promises)) is Replay.NONE
    assert replay_of(ALL) is Replay.REPLAYABLE


@pytest.mark.parametrize("delivery", Delivery)
def test_only_at_most_once_can_do_without_a_replay(tmp_path: Path, delivery: Delivery) -> None:
    file = file_of(tmp_path, delivery)
    faults = list(source_faults(file, connector(NONE)))
    assert bool(faults) == (delivery is not Delivery.AT_MOST_ONCE)
    for fault in faults:
        assert fault.where == "sources.clicks"
        assert fault.line == file.document.place(("sources", "clicks")).line
        assert fault.what.startswith(f"{delivery.value} is not possible: the source cannot")
        assert "delivery: at_most_once" in fault.suggestion
        assert fault.rule == "impossible-delivery"
    assert list(source_faults(file, connector(ALL))) == []


def test_kafka_can_do_it_all(tmp_path: Path) -> None:
    file = file_of(tmp_path, Delivery.EXACTLY_ONCE)
    assert list(source_faults(file, find_connector("kafka"))) == []


def test_a_start_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    around = Surroundings(
        connector_name="gateway",
        connector=connector(NONE),
        connection=Connection("127.0.0.1:1"),
        session=SessionSettings(),
        clock=ManualClock(),
        report=_silent,
        checkpoint_waiver=CheckpointWaiver(reason="a test, thrown away", until=date.max),
    )
    file = file_of(tmp_path, Delivery.AT_LEAST_ONCE)
    with pytest.raises(ConfigError, match="a source cannot keep what `delivery` promises"):
        Application(file, RunOptions(), around).run()
