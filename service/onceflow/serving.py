"""Many pipelines in one process: finds their files, wires them together, watches over them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom
from typing import Any

from onceflow.app import RunOptions, with_bulletins
from onceflow.contracts.observer import Report
from onceflow.errors import ConfigError
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.file.loader import PipelineFile, load_pipeline
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.policies import Restart
from onceflow.run import Surroundings
from onceflow.runtime.checkpoint.disk import require_lasting
from onceflow.runtime.spark.session import SharedEngine
from onceflow.serve.fleet import DrainableRun, Fleet, Member, Status
from onceflow.serve.history import History
from onceflow.serve.metrics import Metrics
from onceflow.serve.monitoring import run_monitored
from onceflow.serve.renewal import Renewal
from onceflow.serve.restarts import Restarts
from onceflow.settings import Settings


@dataclass(frozen=True)
class Entry:
    """A file that the service was given."""

    name: str
    """By which people know its pipeline here: its own, unless several files have that."""
    path: Path
    restart: Restart = field(default_factory=Restart)
    checkpoint: str = ""
    """Empty if the file is faulty."""
    has_processors: bool = False


def find_entries(files: Sequence[Path]) -> Sequence[Entry]:
    """The pipelines in these files, in the order of the files.

    A file that cannot be read is one, too: its pipeline fails by itself, where everybody sees it.
    """
    entries = [_entry(file) for file in files]
    count = Counter(entry.name for entry in entries)
    return [
        entry if count[entry.name] == 1 else replace(entry, name=f"{entry.name}@{entry.path.stem}")
        for entry in entries
    ]


def load_alone(entry: Entry, entries: Sequence[Entry]) -> PipelineFile:
    """Load a file that no other one gets in the way of.

    Raises:
        ConfigError: it is faulty, or another file has its name or its checkpoint.
    """
    file = load_pipeline(entry.path)
    name, checkpoint = file.pipeline.name, file.pipeline.checkpoint_location
    for other in entries:
        theirs = None if other.path == entry.path else _pipeline_in(other.path)
        found, then = f"{entry.path} and {other.path}", "neither is started; the others run"
        if theirs and theirs.name == name:
            what = "two files have a pipeline of the same name"
            raise ConfigError(what, subject=name, found=found, then=then)
        if theirs and theirs.checkpoint_location == checkpoint:
            what = "two pipelines have the same checkpoint"
            raise ConfigError(what, subject=checkpoint, found=found, then=then)
    return file


class Service:
    """All pipelines of a process, and what they share.

    `effective` are the settings, each with name, value and origin. `report_of` makes the report of
    a pipeline by its name, and that of the service for "".
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        settings: Settings,
        effective: Sequence[Mapping[str, Any]],
        around: Surroundings,
        options: RunOptions,
        report_of: Callable[[str], Report],
    ) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.settings = settings
        self.effective = effective
        self.clock = around.clock
        self.histories = {entry.name: History(around.clock) for entry in entries}
        """What happened to each pipeline in the last hour."""
        has_processors = any(entry.has_processors for entry in entries)
        self.engine = SharedEngine(around.session, has_processors=has_processors)
        self._report = report_of("")
        self.around = replace(around, engine=self.engine)
        versions = {"version": version("onceflow"), "spark": version("pyspark")}
        self.metrics = Metrics(around.clock, self._statuses, versions, self._free_bytes)
        members = [self._member(entry, options, report_of(entry.name)) for entry in entries]
        self._renewal = Renewal(settings.secret_files(), around.clock)
        self.fleet = Fleet(members, self.engine.loss, around.clock, self._is_renewed)

    def load(self, name: str) -> PipelineFile:
        """The file of a pipeline as it is now.

        Raises:
            ConfigError: as `load_alone`, or it brings code that may not run here.
        """
        file = load_alone(self.entries[name], [*self.entries.values()])
        return self.settings.require_allowed(file, is_trusted=False)

    def analyse(self, file: PipelineFile) -> None:
        """Find everything that is wrong with a file before a run; starts nothing of it.

        Raises:
            ConfigError: lists every fault.
        """
        now_ms = self.around.clock.unix_ms()
        require_lasting(file, self.settings.ephemeral_checkpoints, now_ms)
        analyse(self.engine.open_session(""), file, now_ms)

    def run(self) -> None:
        """Run until all pipelines are drained, or have failed for good; answer HTTP meanwhile.

        Raises:
            ConfigError: a port is taken; nothing was started.
            Exception: as `Fleet.run`.
        """
        registry, clock = self.metrics.registry, self.around.clock
        try:
            run_monitored(self.fleet, registry, self.settings.monitoring, clock, self._report)
        finally:
            self.engine.stop()

    def _member(self, entry: Entry, options: RunOptions, report: Report) -> Member:
        history = self.histories[entry.name]
        listeners = (self.metrics.report_of(entry.name), history, report)
        observer = self.metrics.observer_of(entry.name)

        def make(listener: Report) -> DrainableRun:
            # On every start: the file may have been fixed, or a secret renewed.
            file = self.load(entry.name)
            self.around = replace(self.around, connection=self.settings.connection())
            around = replace(self.around, observer=observer, report=listener)
            timed = file.pipeline.event_time_sources
            history.only_holder = next(iter(timed)) if len(timed) == 1 else None
            return with_bulletins(file, options, around, lambda _: None)

        def tell(event: str, /, **facts: object) -> None:
            for listener in listeners:
                listener(event, **facts)

        restarts = Restarts(entry.restart, self.around.clock, SystemRandom())
        return Member(entry.name, make, restarts, tell)

    def _statuses(self) -> Sequence[Status]:
        """For the metrics, which exist before the fleet that reports to them."""
        return self.fleet.statuses()

    def _is_renewed(self) -> bool:
        is_renewed = self._renewal.is_due()
        if is_renewed:
            self._report("renewed", files=[str(file) for file in self.settings.secret_files()])
        return is_renewed

    def _free_bytes(self) -> Mapping[str, int]:
        """Room for each checkpoint on a disk of this machine."""
        found = {}
        for entry in self.entries.values():
            folder = Path(entry.checkpoint)
            if entry.checkpoint and "://" not in entry.checkpoint and folder.exists():
                disk = os.statvfs(folder)
                found[entry.name] = disk.f_bavail * disk.f_frsize
        return found


def _entry(file: Path) -> Entry:
    if (found := _pipeline_in(file)) is None:
        return Entry(file.stem, file)
    return Entry(found.name, file, found.restart, found.checkpoint_location, found.has_processors)


def _pipeline_in(file: Path) -> Pipeline | None:
    """None if the file is faulty."""
    try:
        return load_pipeline(file).pipeline
    except ConfigError:
        return None
