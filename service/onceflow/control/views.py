"""Looks at what a service runs, for the API and the page. Changes nothing.

A class of views for each kind of file says what is to be seen of it; the rest is here.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

from fastapi import Path
from pydantic import BaseModel

from onceflow.clock import Clock, Deadline
from onceflow.config import has_path, leaves_of
from onceflow.control.showing import MASK
from onceflow.errors import ConfigError, OnceflowError
from onceflow.foreign_settings import CLIENT, SPARK_SHOWN, names_in
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.text.yaml_text import Document
from onceflow.serve.fleet import Fleet, Status
from onceflow.serve.hour import Hour
from onceflow.settings import Settings

FRESH_S = 2.0
"""A look is reused for this long."""
READ_TIMEOUT_S = 30.0
WATCH_S = 2.0
"""How long to watch the input to measure its rate."""
REPLAY_TIMEOUT_S = 300.0
"""What was not sent by then is sent by the next replay."""
MAX_ENTRIES = 1_000
MAX_MARKS = 12
"""On the page of one file, the newest first."""
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


Name = Annotated[str, Path(description="The name in the file.", max_length=200)]
Json = Mapping[str, Any]
T = TypeVar("T")


class Served(Protocol):
    """A service as views see it."""

    fleet: Fleet
    settings: Settings
    effective: Sequence[Mapping[str, Any]]
    """Each setting of the process with its name, value and origin."""
    clock: Clock

    @property
    def histories(self) -> Mapping[str, Hour]:
        """The last hour of each file, by its name."""


@dataclass
class Look(Generic[T]):
    """The newest look at something, which is reused for a while, however many ask."""

    clock: Clock
    fresh_s: float = FRESH_S
    _found: T | None = None
    _stale_at_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, look: Callable[[], T]) -> T:
        """Return the newest look; look again if it is too old."""
        with self._lock:
            if self._found is None or self.clock.monotonic_s() > self._stale_at_s:
                self._found = look()
                self._stale_at_s = self.clock.monotonic_s() + self.fresh_s
            return self._found


class Views(ABC):
    """Answers questions about a service. For several threads at once.

    Public methods with a `Name` are answers of the API, which shows their docstrings. All may raise
    `OnceflowError`: the file is faulty, it never ran, or brokers did not answer.

    Attributes:
        kind: of the files.
        template: of the page of one, by its name without `.html`.
        ending: what becomes of the work that is under way, if it is stopped.
        trend: what is done with the records whose rate the overview draws.
        looks: further paths below a file in the API, and the method that answers each.
        orders: the same for callers with the role `write`.
    """

    kind: FileKind
    template: ClassVar[str]
    ending: ClassVar[str]
    trend: ClassVar[str]

    def __init__(self, service: Served) -> None:
        self.service = service
        self.looks: Mapping[str, Callable[..., Any]] = {}
        self.orders: Mapping[str, Callable[..., Any]] = {}

    def all(self) -> Sequence[Json]:
        """Every one: desired and observed state."""
        return [status_fields(status) for status in self.service.fleet.statuses()]

    def configuration(self) -> Sequence[Json]:
        """Every setting of the process, and where it comes from. No secrets."""
        return [
            setting if may_be_shown(setting["name"]) else {**setting, "value": MASK}
            for setting in self.service.effective
        ]

    def one(self, name: Name) -> Json:
        """State, and what is to be seen from outside: where it stands, and how much waits."""
        try:
            seen: Json = self.seen(name)
        except OnceflowError as error:
            seen = {"not_seen": {str(self.kind): str(error)}}
        return {**status_fields(self.status(name)), "seen": seen}

    def history(self, name: Name) -> Json:
        """Rates, lag, times and state of the last hour, and what happened; ends with the process.

        Columns of intervals, oldest first; null is unknown.
        """
        return {str(self.kind): name, **self.service.histories[name].fields()}

    @abstractmethod
    def why_stuck(self, name: Name) -> Json:
        """Causes that hold it up, the most serious first; takes two seconds."""

    @abstractmethod
    def configuration_of(self, name: Name) -> Sequence[Json]:
        """Every value of its file that is in force, and where it comes from. No secrets."""

    def validate(self, name: Name) -> Json:
        """Whether its file as it is now could be started, and every fault in it."""
        try:
            self.analyse(name)
        except ConfigError as error:
            faults = [str(fault) for fault in error.faults] or [str(error)]
            return {"is_valid": False, "faults": faults}
        return {"is_valid": True, "faults": []}

    @abstractmethod
    def analyse(self, name: str) -> None:
        """Find everything that is wrong with a file before a run.

        Raises:
            ConfigError: lists every fault.
        """

    @abstractmethod
    def seen(self, name: str) -> Json:
        """Collect what is to be seen of it from outside."""

    @abstractmethod
    def row(self, name: str) -> Json:
        """Its part of the overview: `figures` and `long` ones, each with its title, and `why`."""

    @abstractmethod
    def panel(self, name: str) -> Json:
        """The values that the template of its page takes, besides those of `page.py`."""

    def status(self, name: str) -> Status:
        """Desired and observed state."""
        return self.service.fleet.members[name].status()

    def deadline(self) -> Deadline:
        """For one question to the brokers."""
        return self.service.clock.within(READ_TIMEOUT_S)

    def shown_columns(self, name: str) -> frozenset[str]:
        """The columns whose values the settings allow to show."""
        control = self.service.settings.control
        columns = (text.partition(".") for text in (control.shown_columns if control else ()))
        return frozenset(column for file, _, column in columns if file == name)


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


def with_origins(model: BaseModel, document: Document, file: str) -> Iterator[Json]:
    """Yield every value of a file that is in force, and the line that says it."""
    for path, value in leaves_of(model.model_dump(mode="json", by_alias=True)):
        place = document.place(path) if has_path(document.data, path) else None
        origin = f"{file}, line {place.line}" if place else "default"
        yield {"name": ".".join(map(str, path)), "value": value, "origin": origin}
