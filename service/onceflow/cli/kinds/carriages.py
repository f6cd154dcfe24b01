"""Commands for deliveries and enrichments alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from onceflow.cli.shared.options import kafka
from onceflow.cli.shared.output import ResultFormat, print_json
from onceflow.pipeline.file.kinds import FileKind

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onceflow.contracts.connector import Topics
    from onceflow.delivery.metrics import DeliveryMetrics
    from onceflow.delivery.model import Carriage
    from onceflow.delivery.survey import DeliverySurvey
    from onceflow.protocol.guarantee import Guarantee
    from onceflow.settings import Settings


C = TypeVar("C", bound="Carriage")


class CarriageCommands(ABC, Generic[C]):
    """Implements `Commands` for files that carry records from topics to a target."""

    kind: ClassVar[FileKind]

    @abstractmethod
    def load(self, file: Path, *, may_run_code: bool = True) -> C:
        """Read and check a file.

        Raises:
            ConfigError: lists every fault.
        """

    @abstractmethod
    def metrics(self) -> type[DeliveryMetrics]:
        """The metrics of a process that serves such files."""

    @abstractmethod
    def model(self) -> type[C]:
        """The model of its file."""

    @abstractmethod
    def facts(self, carriage: C) -> Mapping[str, Any]:
        """For `explain` as JSON, besides what all have."""

    @abstractmethod
    def steps(self, carriage: C) -> Sequence[str]:
        """Say in the picture of `explain` what is done with records, besides what all do."""

    @abstractmethod
    def passage(self, carriage: C) -> tuple[str, str]:
        """Say how records get to the target, and what keeps the position."""

    def run(self, file: Path, settings: Settings, *, is_until_caught_up: bool) -> None:
        """Run it until it is drained, has caught up, or fails."""
        from random import Random
        from threading import Event

        from onceflow.cli.shared.report import open_report
        from onceflow.clock import SystemClock
        from onceflow.delivery.memory import keep_flat
        from onceflow.delivery.run import Around, run_carriage
        from onceflow.serve.ending import drain_on_signals

        keep_flat()
        clock, stop = SystemClock(), Event()
        with open_report(clock) as report, drain_on_signals(stop.set):
            # Instances that failed together draw different delays.
            random = Random(clock.unix_ms())  # noqa: S311  for delays
            around = Around(kafka(), settings.connection(), clock, report, stop, random)
            carriage = self.load(file, may_run_code=_may_run_code(settings, is_trusted=True))
            run_carriage(carriage, around, is_until_caught_up=is_until_caught_up)

    def serve(
        self, files: Sequence[Path], overrides: Mapping[str, str | None], config: Path | None
    ) -> None:
        """Run all of them in this process, and start again what fails."""
        import os
        from contextlib import ExitStack
        from functools import partial
        from random import SystemRandom
        from threading import Event

        from onceflow.cli.shared.report import open_fleet_report
        from onceflow.clock import SystemClock
        from onceflow.config import read_settings
        from onceflow.delivery.memory import keep_flat
        from onceflow.delivery.run import Around
        from onceflow.delivery.serving import CarriageService
        from onceflow.serve.ending import drain_on_signals

        keep_flat()
        settings, effective = read_settings(os.environ, overrides, config)
        load = partial(self.load, may_run_code=_may_run_code(settings, is_trusted=False))
        clock = SystemClock()
        with ExitStack() as stack:
            report_of = stack.enter_context(open_fleet_report(clock, self.kind))
            around = Around(
                kafka(), settings.connection(), clock, report_of(""), Event(), SystemRandom()
            )
            read = (settings, effective)
            service = CarriageService(files, load, self.metrics(), read, around, report_of)
            if settings.control is not None:
                from onceflow.control.api import controlled
                from onceflow.control.carriages import CarriageViews

                views = CarriageViews(service, self.kind)
                stack.enter_context(controlled(views, settings.control, report_of("")))
            stack.enter_context(drain_on_signals(service.fleet.request_drain))
            service.run()

    def letter_topic(self, file: Path) -> str:
        """Tell the topic of its dead letters."""
        from onceflow.repair.dead_letters import letter_topic_of

        carriage = self.load(file)
        return letter_topic_of(self.kind, carriage.name, carriage.dead_letter)

    def explain(self, file: Path, output: ResultFormat) -> None:
        """Draw it, without asking brokers or a target."""
        carriage = self.load(file)
        guarantee = carriage.guarantee()
        if output is ResultFormat.JSON:
            found = {
                self.kind: carriage.name,
                "topics": list(carriage.source.topics),
                "columns": carriage.source.columns.columns_ddl,
                "to": carriage.describe(),
                **self.facts(carriage),
                "guarantee": guarantee.level.value,
                "scope": guarantee.scope,
                "reasons": [str(reason) for reason in guarantee.reasons],
                "on_reject": carriage.rejection,
                "group": carriage.group,
            }
            print_json(found)
            return
        from onceflow.cli.shared.picture import WIDTH
        from onceflow.cli.shared.terminal import Terminal

        console = Terminal(width=WIDTH, highlight=False)
        for part in self._picture(carriage):
            console.print(part, soft_wrap=isinstance(part, str))

    def guarantee_of(self, file: Path) -> Guarantee:
        """Tell what it promises."""
        return self.load(file).guarantee()

    def topics(self, file: Path) -> Topics:
        """Tell the topics that it reads and writes."""
        return self.load(file).kafka_topics()

    def status(self, file: Path, settings: Settings, output: ResultFormat) -> None:
        """Show where it stands, seen from outside."""
        from onceflow.delivery.survey import fields_of
        from onceflow.texts import time_text

        with _opened_survey(self.load(file), settings) as survey:
            facts = survey.facts()
        if output is ResultFormat.JSON:
            print_json(fields_of(facts))
        else:
            _print_facts(facts.carriage.name, fields_of(facts, time_text))

    def why_stuck(self, file: Path, settings: Settings, output: ResultFormat) -> None:
        """Tell what holds it up. Exits with 1 if something does."""
        from onceflow.cli.shared.findings import WATCH_S, tell
        from onceflow.delivery.diagnosis import diagnose

        carriage = self.load(file)
        with _opened_survey(carriage, settings) as survey:
            facts = survey.watched(survey.facts(), WATCH_S)
        tell(carriage.name, diagnose(facts), facts, output)

    def _picture(self, carriage: C) -> Iterator[RenderableType]:
        from onceflow.cli.shared.picture import arrow, box
        from onceflow.pipeline.analysis.explain import Passage, Station

        source, batch, retry = carriage.source, carriage.limits, carriage.retry
        topics = f"topic {', '.join(source.topics)}"
        columns = f"{source.format}: {source.columns.columns_ddl}" if source.ddl else "as they came"
        yield box(Station(topics, (columns,)))
        yield from arrow(Passage("committed records, each once", "repeats are discarded"))
        tries = "until it works" if retry.attempts is None else f"{retry.attempts} times"
        most = f"{batch.max_records:,} records or {batch.max_bytes / 2**20:g} MiB"
        span = f"{retry.delay_ms / 1000:g} to {retry.max_delay_ms / 1000:g} s"
        facts: tuple[str, ...] = (
            f"reads as group {carriage.group}",
            *self.steps(carriage),
            f"writes at most {most} at once, and waits {batch.max_delay_ms:,} ms for them",
            f"tries a target that fails again {tries}, after {span}",
            _rejection(carriage),
        )
        if (age_ms := carriage.when_behind.max_age_ms) is not None:
            facts += (f"drops records that have waited for longer than {age_ms / 1000:,g} s",)
        yield box(Station(f"{self.kind} {carriage.name}", facts))
        guarantee = carriage.guarantee()
        step, keeps = self.passage(carriage)
        yield from arrow(Passage(str(guarantee), step))
        yield box(Station(carriage.describe(), (f"{keeps} the position of the {self.kind}",)))
        for reason in guarantee.reasons:
            yield f"\nnot more: {reason}"


def _may_run_code(settings: Settings, *, is_trusted: bool) -> bool:
    """Whether this process may run code that files bring, as `transforms` says, or its user."""
    return is_trusted if settings.transforms is None else settings.transforms


def _opened_survey(
    carriage: Carriage, settings: Settings
) -> AbstractContextManager[DeliverySurvey]:
    from onceflow.clock import SystemClock
    from onceflow.delivery.model import Lent
    from onceflow.delivery.survey import opened_survey

    lent = Lent(kafka(), settings.connection(), SystemClock(), lambda event, /, **facts: None)
    return opened_survey(carriage, lent)


def _rejection(carriage: Carriage) -> str:
    if carriage.rejection == "dead_letter" and carriage.dead_letter is not None:
        return f"rejected records go to the topic {carriage.dead_letter.topic}"
    done = {"drop": "are dropped and counted", "fail": "stop it"}
    return f"rejected records {done[carriage.rejection]}"


def _print_facts(name: str, facts: dict[str, Any]) -> None:
    from rich.text import Text

    from onceflow.cli.shared.standing import inputs_table, notes_on, place_of
    from onceflow.cli.shared.terminal import Terminal

    console = Terminal()
    console.print(Text.assemble((name, "bold"), f" to {facts['to']}"))
    console.print(Text(f"  {facts['guarantee']}"))
    style = "" if facts["target"] == "well" else "yellow"
    console.print(Text(f"  target: {facts['target']}", style=style))
    known = facts["instances"]
    console.print(f"  instances: {'unknown' if known is None else known}")
    for line in notes_on(facts):
        console.print(Text(f"  {line}"))
    console.print(inputs_table(facts["topics"], {"topic": place_of}))
