"""Looks at the pipelines of a service, for the API and the page. Changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

from fastapi import Path, Query

from onceflow.clock import Deadline
from onceflow.config import has_path, leaves_of
from onceflow.control.records import letter_fields, newest_records
from onceflow.control.state import MASK, StateDesk
from onceflow.errors import ConfigError, OnceflowError
from onceflow.foreign_settings import CLIENT, SPARK_SHOWN, names_in
from onceflow.observe.diagnosis import diagnose, fields_of
from onceflow.observe.facts import Facts, watermark_holder
from onceflow.observe.summary import summary_of
from onceflow.observe.survey import Survey, opened_survey
from onceflow.pipeline.file.loader import PipelineFile, load_pipeline
from onceflow.pipeline.file.model import Pipeline
from onceflow.protocol.identity import DRIVER_SLOT
from onceflow.protocol.ledger import HeadEntry
from onceflow.repair.dead_letters import Resender, opened_letters, read_letters
from onceflow.serve.fleet import Status
from onceflow.serving import Service

FRESH_S = 2.0
"""A look at a pipeline is reused for this long."""
READ_TIMEOUT_S = 30.0
WATCH_S = 2.0
"""How long to watch the input to measure its rate."""
MAX_ENTRIES = 1_000
MAX_KEY_COLUMNS = 50
SHOWN = names_in("""
    bootstrap_servers checkpoint_root client control gateway monitoring sasl spark spark.conf tls
    transaction_timeout transforms
    ephemeral_checkpoints ephemeral_checkpoints.reason ephemeral_checkpoints.until
    control.address control.certificate_file control.key_file control.port control.tokens_file
    control.shown_columns control.trusted_proxies monitoring.address monitoring.port
    gateway.address gateway.advertise gateway.allow_clear_text gateway.ca_file
    gateway.certificate_file gateway.key_file gateway.port gateway.tokens_file
    sasl.allow_clear_text sasl.client_id sasl.client_secret_file sasl.mechanism sasl.password_file
    sasl.scope sasl.token_ca_file sasl.token_endpoint sasl.username
    spark.driver_memory spark.master spark.max_batch_s spark.max_made spark.max_result_bytes
    spark.max_rows spark.shuffle_partitions
    tls.ca_file tls.certificate_file tls.key_file tls.key_password_file
""")
"""Our own settings that are not secret: secrets are in files that these settings name."""


Name = Annotated[str, Path(description="Name of the pipeline.", max_length=200)]
Json = Mapping[str, Any]


class Side(StrEnum):
    """The input or the output of a pipeline."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass
class _Look:
    facts: Facts | None = None
    at_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Views:
    """Answers questions about a service. For several threads at once.

    Public methods with a `Name` are answers of the API, which shows their docstrings. All may raise
    `OnceflowError`: the file is faulty, the pipeline never ran, or brokers did not answer.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        around = service.around
        self._state = StateDesk(service.engine, around.session, around.clock)
        self._looks = {name: _Look() for name in service.entries}

    def pipelines(self) -> Sequence[Json]:
        """Every pipeline: desired and observed state."""
        return [status_fields(status) for status in self._service.fleet.statuses()]

    def configuration(self) -> Sequence[Json]:
        """Every setting of the process, and where it comes from. No secrets."""
        return [
            setting if may_be_shown(setting["name"]) else {**setting, "value": MASK}
            for setting in self._service.effective
        ]

    def pipeline(self, name: Name) -> Json:
        """State, owner, position, lag, event watermark and who holds it, account."""
        try:
            seen: Json = summary_of(self.facts(name))
        except OnceflowError as error:
            seen = {"not_seen": {"pipeline": str(error)}}
        return {**status_fields(self.status(name)), "seen": seen}

    def position(self, name: Name) -> Json:
        """The newest entry of its ledger."""
        return _entry_fields(self.facts(name).head)

    def history(self, name: Name) -> Json:
        """Rates, lag, times and state of the last hour, and what happened; ends with the process.

        Columns of intervals, oldest first; null is unknown.
        """
        return {"pipeline": name, **self._service.histories[name].fields()}

    def ledger(
        self, name: Name, last: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 20
    ) -> Sequence[Json]:
        """The newest entries of its ledger, oldest first."""
        around, pipeline = self._service.around, self.file(name).pipeline
        with closing(around.connector.ledger(pipeline.name, around.connection)) as ledger:
            deadline = self._deadline()
            entries = ledger.history(DRIVER_SLOT, deadline) if ledger.exists(deadline) else ()
            return [_entry_fields(entry) for entry in [*entries][-last:]]

    def dead_letters(
        self,
        name: Name,
        reason: Annotated[str, Query(max_length=100)] = "",
        most: Annotated[int, Query(alias="max", ge=1, le=MAX_ENTRIES)] = 100,
    ) -> Sequence[Json]:
        """Rejected records, oldest first.

        Shows the values of columns that the setting `control.shown_columns` names.
        """
        pipeline = self.file(name).pipeline
        shown = self._shown_columns(pipeline.name)
        with self.letters(pipeline) as letters:
            found = read_letters(letters.broker, letters.topic, {}, self._deadline())
            wanted = (filed for filed in found if reason in {"", filed[1].reason})
            return [letter_fields(filed, shown) for filed in islice(wanted, most)]

    def records(self, name: Name, side: Side = Side.OUTPUT) -> Sequence[Json]:
        """The newest records of its input or output, newest first.

        Shows the values of columns that the setting `control.shown_columns` names.
        """
        facts = self.facts(name)
        topics = {facts.head.sink.topic}
        if side is Side.INPUT:
            topics = {one.topic for one in facts.inputs}
        shown = self._shown_columns(facts.head.pipeline)
        around = self._service.around
        with closing(around.connector.broker(around.connection)) as broker:
            return newest_records(broker, topics, shown, self._deadline())

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
        shown = self._shown_columns(pipeline.name)
        location = pipeline.checkpoint_location
        return self._state.rows(location, operator, key, batch, most, shown)

    def configuration_of(self, name: Name) -> Sequence[Json]:
        """Every value of its file that is in force, and where it comes from."""
        return [*_with_origins(self.file(name))]

    def validate(self, name: Name) -> Json:
        """Whether its file as it is now could be started, and every fault in it."""
        try:
            self._service.analyse(self._service.load(name))
        except ConfigError as error:
            faults = [str(fault) for fault in error.faults] or [str(error)]
            return {"is_valid": False, "faults": faults}
        return {"is_valid": True, "faults": []}

    def status(self, name: str) -> Status:
        """Desired and observed state."""
        return self._service.fleet.members[name].status()

    def facts(self, name: str) -> Facts:
        """A look that is at most `FRESH_S` old, however many ask."""
        look, clock = self._looks[name], self._service.around.clock
        with look.lock:
            if look.facts is None or clock.monotonic_s() - look.at_s > FRESH_S:
                with self._surveyed(name) as survey:
                    look.facts = survey.facts()
                look.at_s = clock.monotonic_s()
                holder = watermark_holder(look.facts)
                self._service.histories[name].note_holder(holder.source if holder else None)
            return look.facts

    def newest_dead_letters(self, name: str, most: int) -> Sequence[Json]:
        """The newest rejected records, newest first."""
        pipeline = self.file(name).pipeline
        shown = self._shown_columns(pipeline.name)
        with self.letters(pipeline) as letters:
            offsets = letters.broker.offsets(letters.topic, self._deadline())
            starts = {partition: end - most for partition, (_, end, _) in offsets.items()}
            found = sorted(
                read_letters(letters.broker, letters.topic, starts, self._deadline()),
                key=lambda filed: (filed[0].timestamp_ms, filed[0].partition, filed[0].offset),
            )
        return [letter_fields(filed, shown) for filed in found[: -most - 1 : -1]]

    def file(self, name: str) -> PipelineFile:
        """The pipeline file as it is now."""
        return load_pipeline(self._service.entries[name].path)

    def letters(self, pipeline: Pipeline) -> AbstractContextManager[Resender]:
        """Open a resender, to read its dead letters and to send them again."""
        around = self._service.around
        return opened_letters(pipeline, around.connector, around.connection, self._deadline())

    def _shown_columns(self, pipeline: str) -> frozenset[str]:
        control = self._service.settings.control
        columns = (text.partition(".") for text in (control.shown_columns if control else ()))
        return frozenset(column for name, _, column in columns if name == pipeline)

    def _surveyed(self, name: str) -> AbstractContextManager[Survey]:
        around, pipeline = self._service.around, self.file(name).pipeline
        return opened_survey(
            pipeline.name,
            around.connector,
            around.connection,
            around.clock,
            pipeline.event_time_sources,
        )

    def _deadline(self) -> Deadline:
        return self._service.around.clock.within(READ_TIMEOUT_S)


def status_fields(status: Status) -> Json:
    """A state as plain data."""
    error = status.error
    return {
        "name": status.name,
        "desired": status.desired,
        "observed": status.observed,
        "restarts": status.restarts,
        "error": None if error is None else {"kind": type(error).__name__, "text": str(error)},
    }


def may_be_shown(name: str) -> bool:
    """Whether the value of a setting is known not to be a secret."""
    for beginning, judged in (("client.", CLIENT), ("spark.conf.", SPARK_SHOWN)):
        if name.startswith(beginning):
            return name.removeprefix(beginning) in judged
    return name in SHOWN


def _entry_fields(entry: HeadEntry) -> Json:
    fields: Json = json.loads(entry.to_json())
    return fields


def _with_origins(file: PipelineFile) -> Iterator[Json]:
    for path, value in leaves_of(file.pipeline.model_dump(mode="json", by_alias=True)):
        place = file.document.place(path) if has_path(file.document.data, path) else None
        origin = f"{file.path.name}, line {place.line}" if place else "default"
        yield {"name": ".".join(map(str, path)), "value": value, "origin": origin}
