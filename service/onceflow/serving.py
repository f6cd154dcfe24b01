"""Many pipelines in one process: finds their files, wires them together, watches over them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom
from typing import Any

from onceflow.app import RunOptions, with_bulletins
from onceflow.config import DEFAULT_FILE
from onceflow.contracts.observer import Report
from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.file.loader import PipelineFile, load_pipeline
from onceflow.pipeline.file.policies import Restart
from onceflow.run import Surroundings
from onceflow.runtime.checkpoint.disk import require_lasting
from onceflow.runtime.spark.session import SharedEngine
from onceflow.serve.exit_watch import end_within
from onceflow.serve.fleet import DrainableRun, Fleet, Member, Status
from onceflow.serve.history import History
from onceflow.serve.http_server import Endpoint, answering
from onceflow.serve.metrics import Metrics
from onceflow.serve.monitoring import Health, monitoring_app
from onceflow.serve.renewal import Renewal
from onceflow.serve.restarts import Restarts
from onceflow.settings import Settings

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Entry:
    """A file that the service was given.

    Args:
        name: by which people know its pipeline here: its own, unless several files have that.
        checkpoint: where its pipeline keeps positions and state; empty if the file is faulty.
    """

    name: str
    path: Path
    restart: Restart = field(default_factory=Restart)
    checkpoint: str = ""


def find_entries(paths: Sequence[Path]) -> Sequence[Entry]:
    """The pipeline files among `paths`, in the order of their names.

    A file that cannot be read is one, too: its pipeline fails by itself, where everybody sees it.

    Args:
        paths: files, and folders whose YAML files are meant, but for settings of the process.

    Raises:
        ConfigError: there is none, or a path does not exist.
    """
    missing = [path for path in paths if not path.exists()]
    if missing:
        faults = tuple(Fault("no such file or folder", str(path)) for path in missing)
        raise ConfigError("nothing to serve", faults=faults)
    files = sorted({file for path in paths for file in _files_of(path)})
    if not files:
        folders = ", ".join(map(str, paths))
        expected = "at least one pipeline file (*.yaml) in it"
        raise ConfigError("nothing to serve", subject=folders, expected=expected)
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
    for other in entries:
        if other.path == entry.path:
            continue
        try:
            theirs = load_pipeline(other.path).pipeline
        except ConfigError:
            continue
        if theirs.name == file.pipeline.name:
            what, subject = "two files have a pipeline of the same name", theirs.name
        elif theirs.checkpoint_location == file.pipeline.checkpoint_location:
            what, subject = "two pipelines have the same checkpoint", theirs.checkpoint_location
        else:
            continue
        raise ConfigError(
            what,
            subject=subject,
            found=f"{entry.path} and {other.path}",
            then="neither is started; the others run",
        )
    return file


class Service:
    """All pipelines of a process, and what they share.

    Args:
        entries: their files.
        effective: the same: each with name, value and origin.
        around: what runs get; its Spark settings are those of all.
        report_of: makes the report of a pipeline, by its name; of the service, by none.
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
        self.histories = {entry.name: History(around.clock) for entry in entries}
        """What happened to each pipeline in the last hour."""
        self.engine = SharedEngine(around.session)
        self._report = report_of("")
        self.around = replace(around, engine=self.engine)
        self.metrics = Metrics(around.clock, self.statuses, _versions(), self._free_bytes)
        members = [self._member(entry, options, report_of(entry.name)) for entry in entries]
        self._renewal = Renewal(settings.secret_files(), around.clock)
        self.fleet = Fleet(members, self.engine.loss, around.clock, self._is_renewed)
        self.health = Health(
            around.clock,
            lambda: self.fleet.looked_at_s,
            self.statuses,
            self.fleet.is_draining,
            lambda: self.fleet.has_lost_engine,
        )

    def statuses(self) -> Sequence[Status]:
        """The status of all pipelines, as they are now."""
        return [member.status() for member in self.fleet.members.values()]

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
        with ExitStack() as stack:
            monitoring = self.settings.monitoring
            app = monitoring_app(self.metrics.registry, self.health)
            endpoint = Endpoint(monitoring.address, monitoring.port)
            port = stack.enter_context(answering(app, endpoint))
            self._report("listening", what="monitoring", address=monitoring.address, port=port)
            with self._ended():
                self.fleet.run()

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """End the process soon after the block, even if a client hangs."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            end_within(error)
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
            timed = [view for view, source in file.pipeline.sources.items() if source.event_time]
            history.only_holder = timed[0] if len(timed) == 1 else None
            return with_bulletins(file, options, around, lambda _: None)

        def tell(event: str, /, **facts: object) -> None:
            for listener in listeners:
                listener(event, **facts)

        restarts = Restarts(entry.restart, self.around.clock, SystemRandom())
        return Member(entry.name, make, restarts, tell)

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


def _files_of(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    # The settings of the process are often in the same folder.
    found = (file for file in path.iterdir() if file.suffix in SUFFIXES and not file.is_dir())
    return [file for file in found if file.name != DEFAULT_FILE.name]


def _entry(file: Path) -> Entry:
    try:
        pipeline = load_pipeline(file).pipeline
    except ConfigError:
        return Entry(file.stem, file)
    return Entry(pipeline.name, file, pipeline.restart, pipeline.checkpoint_location)


def _versions() -> Mapping[str, str]:
    return {"version": version("onceflow"), "spark": version("pyspark")}
