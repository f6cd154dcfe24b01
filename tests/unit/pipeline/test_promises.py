"""A source that cannot be read again is refused wherever `delivery` would need that."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from pathlib import Path

import pytest

from onceflow.app import Application, RunOptions
from onceflow.contracts.connector import Connection, find_connector
from onceflow.contracts.source_block import Capabilities
from onceflow.errors import ConfigError
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.policies import CheckpointWaiver
from onceflow.pipeline.query.promises import replay_of, source_faults
from onceflow.protocol.delivery import Delivery
from onceflow.protocol.guarantee import Replay
from onceflow.run import Surroundings
from onceflow.runtime.spark.session import SessionSettings
from onceflow_connectors.kafka.source.source import KafkaSource
from tests.support.clock import ManualClock
from tests.support.pipelines import pipeline_text, write_pipeline

ALL = Capabilities(is_replayable=True, has_stable_ranges=True, is_ordered=True)
NONE = Capabilities(is_replayable=False, has_stable_ranges=False, is_ordered=False)


def _silent(kind: str, /, **facts: object) -> None:
    """Ignores all reports."""


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
def test_only_at_most_once_can_do_without_a_replay(
    tmp_path: Path, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(tmp_path, delivery)
    assert list(source_faults(file)) == []
    monkeypatch.setattr(KafkaSource, "capabilities", NONE)
    faults = list(source_faults(file))
    assert bool(faults) == (delivery is not Delivery.AT_MOST_ONCE)
    for fault in faults:
        assert fault.where == "sources.clicks"
        assert fault.line == file.document.place(("sources", "clicks")).line
        assert fault.what.startswith(f"{delivery.value} is not possible: the source cannot")
        assert "delivery: at_most_once" in fault.suggestion
        assert fault.rule == "impossible-delivery"


def test_a_start_is_refused_before_anything_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaSource, "capabilities", NONE)
    around = Surroundings(
        connector=find_connector("kafka"),
        connection=Connection("127.0.0.1:1"),
        session=SessionSettings(),
        clock=ManualClock(),
        report=_silent,
        checkpoint_waiver=CheckpointWaiver(reason="a test, thrown away", until=date.max),
    )
    file = file_of(tmp_path, Delivery.AT_LEAST_ONCE)
    with pytest.raises(ConfigError, match="a source cannot keep what `delivery` promises"):
        Application(file, RunOptions(), around).run()
