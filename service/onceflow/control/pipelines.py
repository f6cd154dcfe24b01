"""Looks at pipelines, for the API and the page."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Path, Query

from onceflow.contracts.connector import Broker
from onceflow.control.drawing import timeline_of
from onceflow.control.letters import LetterViews
from onceflow.control.records import newest_records
from onceflow.control.showing import count, moment, span
from onceflow.control.state import StateDesk
from onceflow.control.views import (
    MAX_ENTRIES,
    REPLAY_TIMEOUT_S,
    WATCH_S,
    Json,
    Look,
    Name,
    with_origins,
)
from onceflow.errors import OnceflowError
from onceflow.observe.diagnosis import diagnose, fields_of
from onceflow.observe.facts import Facts, watermark_holder
from onceflow.observe.summary import summary_of
from onceflow.observe.survey import Survey, opened_survey
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.loader import PipelineFile, load_pipeline
from onceflow.pipeline.file.model import Pipeline
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow.protocol.ledger import HeadEntry
from onceflow.repair.dead_letters import Resender, opened_letters
from onceflow.serve.fleet import Observed
from onceflow.serving import Service

MAX_KEY_COLUMNS = 50
MAX_BATCHES = 12
"""Batches in the list; the bars show the newest 60."""


class Side(StrEnum):
    """The input or the output of a pipeline."""

    INPUT = "input"
    OUTPUT = "output"


class PipelineViews(LetterViews):
    """Answers questions about pipelines."""

    kind = FileKind.PIPELINE
    template = "pipeline"
    ending = "Its running batch commits first."
    trend = "read"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._service = service
        around = service.around
        self._state = StateDesk(service.engine, around.session, around.clock)
        self._looks: Mapping[str, Look[Facts]] = {
            name: Look(around.clock) for name in service.entries
        }
        self.looks = {
            "/position": self.position,
            "/ledger": self.ledger,
            "/dead-letters": self.dead_letters,
            "/records": self.records,
            "/state": self.state,
            "/state/{operator}": self.state_rows,
        }
        self.orders = {"/dead-letters/replay": self.replay}

    def position(self, name: Name) -> Json:
        """The newest entry of its ledger."""
        return _entry_fields(self.facts(name).head)

    def ledger(
        self, name: Name, last: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 20
    ) -> Sequence[Json]:
        """The newest entries of its ledger, oldest first."""
        around, pipeline = self._service.around, self.file(name).pipeline
        with closing(around.connector.ledger(pipeline.name, around.connection)) as ledger:
            deadline = self.deadline()
            entries = ledger.history(DRIVER_SLOT, deadline) if ledger.exists(deadline) else ()
            return [_entry_fields(entry) for entry in [*entries][-last:]]

    def records(self, name: Name, side: Side = Side.OUTPUT) -> Sequence[Json]:
        """The newest records of its input or output, newest first.

        Shows the values of columns that the setting `control.shown_columns` names.
        """
        facts = self.facts(name)
        topics = {facts.head.sink.topic}
        if side is Side.INPUT:
            topics = {one.topic for one in facts.inputs}
        shown = self.shown_columns(facts.head.pipeline)
        around = self._service.around
        with closing(around.connector.broker(around.connection)) as broker:
            return newest_records(broker, topics, shown, self.deadline())

    def why_stuck(self, name: Name) -> Json:
        """Causes that hold it up, the most serious first; takes two seconds."""
        with self._surveyed(name) as survey:
            facts = survey.watched(survey.facts(), WATCH_S)
        return {"pipeline": name, **fields_of(diagnose(facts), facts.lag, facts.blind)}

    def state(self, name: Name) -> Sequence[Json]:
        """Operators with state: columns of keys and values, and the batches that can be read."""
        return self._state.operators(self.file(name).pipeline.checkpoint_location)

    def state_rows(
        self,
        name: Name,
        operator: Annotated[str, Path(description="Its name or number.", max_length=200)],
        key: Annotated[list[str], Query(max_length=MAX_KEY_COLUMNS)] = [],  # noqa: B006  FastAPI copies it
        batch: Annotated[int | None, Query(ge=0)] = None,
        most: Annotated[int, Query(alias="max", ge=1, le=MAX_ENTRIES)] = 100,
    ) -> Json:
        """The rows of a key as of a batch, without one as of the newest that is done.

        `key` is `column=value`, once for each column. If a column is missing, all rows are
        examined. Shows the values of columns that the setting `control.shown_columns` names.
        """
        pipeline = self.file(name).pipeline
        shown = self.shown_columns(pipeline.name)
        location = pipeline.checkpoint_location
        return self._state.rows(location, operator, key, batch, most, shown)

    def configuration_of(self, name: Name) -> Sequence[Json]:
        """Every value of its file that is in force, and where it comes from."""
        file = self.file(name)
        return [*with_origins(file.pipeline, file.document, file.path.name)]

    def replay(self, name: Name) -> Json:
        """Send its dead letters that were not sent before to their topics again, each once.

        Answers when they are sent. After an error, call it again: it continues.
        """
        deadline = self.service.clock.within(REPLAY_TIMEOUT_S)
        with self.letters(self._service.load(name).pipeline) as letters:
            return asdict(letters.resend(deadline))

    def analyse(self, name: str) -> None:
        """Find everything that is wrong with a file before a run."""
        self._service.analyse(self._service.load(name))

    def seen(self, name: str) -> Json:
        """Owner, position, lag, event watermark and who holds it, account."""
        return summary_of(self.facts(name))

    def facts(self, name: str) -> Facts:
        """A look that is fresh enough."""

        def look() -> Facts:
            with self._surveyed(name) as survey:
                facts = survey.facts()
            holder = watermark_holder(facts)
            self._service.histories[name].note_holder(holder.source if holder else None)
            return facts

        return self._looks[name].get(look)

    @contextmanager
    def letter_topic(self, name: str) -> Iterator[tuple[Broker, str]]:
        """Lend brokers, and the topic of dead letters."""
        with self.letters(self.file(name).pipeline) as resender:
            yield resender.broker, resender.topic

    def file(self, name: str) -> PipelineFile:
        """The pipeline file as it is now."""
        return load_pipeline(self._service.entries[name].path)

    def letters(self, pipeline: Pipeline) -> AbstractContextManager[Resender]:
        """Open a resender, to read its dead letters and to send them again."""
        around = self._service.around
        return opened_letters(pipeline, around.connector, around.connection, self.deadline())

    def row(self, name: str) -> Json:
        """Its part of the overview."""
        seen = _seen(self._facts(name))
        if not seen["is_seen"]:
            return {"figures": (), "long": (), "why": seen["why"]}
        totals = seen["totals"]
        figures = {
            "Records/s": count(seen["records_per_second"]),
            "Lag": count(seen["lag"]),
            "Batch": str(seen["batch_id"]),
            "Read": count(totals["read"]),
            "Written": count(totals["written"]),
            "Rejected": count(totals["rejected"] + totals["refused"]),
            "Restarts": count(self.status(name).restarts),
        }
        return {
            "figures": figures.items(),
            "long": [("Event watermark", seen["event_watermark"])],
            "why": "",
        }

    def panel(self, name: str) -> Json:
        """Collect what its page shows."""
        facts, history = self._facts(name), self._service.histories[name]
        replayed = history.replayed
        recent = facts.recent if isinstance(facts, Facts) else ()
        seen = _seen(facts)
        return {
            "seen": seen,
            "why": "" if seen["is_seen"] else seen["why"],
            "not_seen": seen["not_seen"] if seen["is_seen"] else {},
            "findings": diagnose(facts) if isinstance(facts, Facts) else (),
            "figures": _figures(seen) if seen["is_seen"] else (),
            "way": self._way(name, seen, history.fields()),
            "bars": timeline_of(recent, replayed) if recent else "",
            "batches": [_batch(entry, replayed) for entry in recent[: -MAX_BATCHES - 1 : -1]],
            "letters": self.letters_panel(name),
            "state": self._state_of(name),
        }

    def _surveyed(self, name: str) -> AbstractContextManager[Survey]:
        around, pipeline = self._service.around, self.file(name).pipeline
        return opened_survey(
            pipeline.name,
            around.connector,
            around.connection,
            around.clock,
            pipeline.event_time_sources,
        )

    def _facts(self, name: str) -> Facts | OnceflowError:
        """A look at a pipeline, or why it cannot be seen."""
        try:
            return self.facts(name)
        except OnceflowError as error:
            return error

    def _way(self, name: str, seen: Json, newest: Json) -> Json | None:
        """From topics through the query to topics; None if its file is faulty."""
        try:
            pipeline = self.file(name).pipeline
        except OnceflowError:
            return None
        records, read = seen.get("records", {}), newest["source_records"]
        # A batch that only lets time pass has no source in its plan.
        unread = 0 if read or newest["operators"] else None
        sources = [
            (
                source.block.describe(),
                _source_text(view, read.get(view, unread), _lag_of(view, seen.get("sources", ()))),
            )
            for view, source in pipeline.sources.items()
        ]
        sinks = [
            (block.topic, f"{what}: {records[count_of]:,}" if count_of in records else what)
            for block, what, count_of in (
                (pipeline.sink.kafka, "output", "written"),
                (pipeline.dead_letter, "dead letters", "rejected"),
                (pipeline.late, "late records", "late"),
            )
            if block is not None
        ]
        middle = [(name, "transform" if pipeline.transform else "query")]
        middle += [(one["name"], _operator_text(one)) for one in newest["operators"]]
        return {"sources": sources, "middle": middle, "sinks": sinks}

    def _state_of(self, name: str) -> Mapping[str, Any]:
        """List the state. Spark is not started only to look."""
        if self.status(name).observed is not Observed.RUNNING:
            return {"operators": (), "why": "Shown while the pipeline runs."}
        try:
            return {"operators": self.state(name), "why": ""}
        except OnceflowError as error:
            return {"operators": (), "why": str(error)}


def _seen(facts: Facts | OnceflowError) -> Mapping[str, Any]:
    if isinstance(facts, OnceflowError):
        return {"is_seen": False, "why": str(facts)}
    bulletin = facts.bulletin
    return {
        **summary_of(facts, moment),
        "is_seen": True,
        "lag": facts.lag,
        "records_per_second": bulletin.records_per_second if bulletin else None,
        # Before its first batch, a run does not know.
        "state_rows": bulletin.state.rows if bulletin and bulletin.batch_id >= 0 else None,
        "retention_left_s": bulletin.retention_left_s if bulletin else None,
    }


def _figures(seen: Json) -> Sequence[tuple[str, str]]:
    holder, owner = seen["watermark_holder"], seen["owner"]
    held = "-"
    if holder:
        held = f"{holder['source']} ({holder['place']})" if holder["place"] else holder["source"]
    return (
        ("Records/s", count(seen["records_per_second"])),
        ("Lag", count(seen["lag"])),
        ("Last batch", str(seen["batch_id"])),
        ("Committed at", seen["batch_timestamp"]),
        ("Event watermark", seen["event_watermark"]),
        ("Held by", held),
        ("State rows", count(seen["state_rows"])),
        ("Unread input deleted in", span(seen["retention_left_s"])),
        ("Owner", f"{owner['host']}, token {owner['token']}" if owner else "-"),
        ("Generation", str(seen["generation"])),
    )


def _source_text(view: str, read: int | None, lag: int | None) -> str:
    told = "" if read is None else f"read {read:,}, "
    return f"{view}: {told}{'lag unknown' if lag is None else f'{lag:,} wait'}"


def _operator_text(operator: Json) -> str:
    late = f", {operator['dropped']:,} late" if operator["dropped"] else ""
    return f"{operator['updated']:,} rows of state changed{late}"


def _lag_of(source: str, places: Sequence[Mapping[str, Any]]) -> int | None:
    """The lag of all partitions together; None if one is unknown."""
    found = [place["lag"] for place in places if place["source"] == source]
    return sum(found) if found and None not in found else None


def _batch(entry: HeadEntry, replayed: Collection[int]) -> Mapping[str, Any]:
    records = entry.records
    return {
        "batch_id": entry.batch.batch_id,
        "at_ms": entry.plan.batch_timestamp_ms,
        "read": records.read,
        "written": records.written,
        "left_out": records.rejected + records.refused + records.late,
        "generation": entry.generation,
        "token": entry.token,
        "note": entry.note,
        "is_replayed": entry.batch.batch_id in replayed,
    }


def _entry_fields(entry: HeadEntry) -> Json:
    fields: Json = json.loads(entry.to_json())
    return fields
