"""Commands for deliveries. Their contract is `Commands`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceflow.cli.shared.options import kafka
from onceflow.cli.shared.output import ResultFormat, print_json
from onceflow.delivery import loader

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onceflow.delivery.model import Delivery
    from onceflow.delivery.survey import DeliverySurvey
    from onceflow.protocol.guarantee import Guarantee
    from onceflow.settings import Settings


def run(file: Path, settings: Settings, *, is_until_caught_up: bool) -> None:
    from random import Random
    from threading import Event

    from onceflow.cli.shared.report import open_report
    from onceflow.clock import SystemClock
    from onceflow.delivery.run import Around, run_delivery
    from onceflow.serve.ending import drain_on_signals

    clock, stop = SystemClock(), Event()
    with open_report(clock) as report, drain_on_signals(stop.set):
        # Instances that failed together draw different delays.
        random = Random(clock.unix_ms())  # noqa: S311  for delays
        around = Around(kafka(), settings.connection(), clock, report, stop, random)
        run_delivery(loader.load_delivery(file), around, is_until_caught_up=is_until_caught_up)


def serve(files: Sequence[Path], overrides: Mapping[str, str | None], config: Path | None) -> None:
    import os
    from contextlib import ExitStack
    from random import SystemRandom
    from threading import Event

    from onceflow.cli.shared.report import open_fleet_report
    from onceflow.clock import SystemClock
    from onceflow.config import read_settings
    from onceflow.delivery.run import Around
    from onceflow.delivery.serving import DeliveryService
    from onceflow.serve.ending import drain_on_signals

    settings, _ = read_settings(os.environ, overrides, config)
    clock = SystemClock()
    with ExitStack() as stack:
        report_of = stack.enter_context(open_fleet_report(clock, "delivery"))
        around = Around(
            kafka(), settings.connection(), clock, report_of(""), Event(), SystemRandom()
        )
        service = DeliveryService(files, settings, around, report_of)
        stack.enter_context(drain_on_signals(service.fleet.request_drain))
        service.run()


def explain(file: Path, output: ResultFormat) -> None:
    delivery = loader.load_delivery(file).delivery
    guarantee = delivery.guarantee()
    if output is ResultFormat.JSON:
        found = {
            "delivery": delivery.name,
            "topics": list(delivery.source.topics),
            "columns": delivery.source.columns.columns_ddl,
            "to": delivery.to.block.describe(),
            "guarantee": guarantee.level.value,
            "scope": guarantee.scope,
            "reasons": [str(reason) for reason in guarantee.reasons],
            "on_reject": delivery.rejection,
            "group": delivery.group,
        }
        print_json(found)
        return
    from onceflow.cli.shared.picture import WIDTH
    from onceflow.cli.shared.terminal import Terminal

    console = Terminal(width=WIDTH, highlight=False)
    for part in _picture(delivery):
        console.print(part, soft_wrap=isinstance(part, str))


def guarantee_of(file: Path) -> Guarantee:
    return loader.load_delivery(file).delivery.guarantee()


def status(file: Path, settings: Settings, output: ResultFormat) -> None:
    from onceflow.delivery.survey import fields_of
    from onceflow.texts import time_text

    with _opened_survey(loader.load_delivery(file).delivery, settings) as survey:
        facts = survey.facts()
    if output is ResultFormat.JSON:
        print_json(fields_of(facts))
    else:
        _print_facts(fields_of(facts, time_text))


def why_stuck(file: Path, settings: Settings, output: ResultFormat) -> None:
    from onceflow.cli.shared.findings import WATCH_S, tell
    from onceflow.delivery.diagnosis import diagnose

    delivery = loader.load_delivery(file).delivery
    with _opened_survey(delivery, settings) as survey:
        facts = survey.watched(survey.facts(), WATCH_S)
    tell(delivery.name, diagnose(facts), facts, output)


def json_schema() -> Mapping[str, Any]:
    return loader.json_schema()


def _opened_survey(
    delivery: Delivery, settings: Settings
) -> AbstractContextManager[DeliverySurvey]:
    from onceflow.clock import SystemClock
    from onceflow.delivery.survey import opened_survey

    return opened_survey(delivery, kafka(), settings.connection(), SystemClock())


def _picture(delivery: Delivery) -> Iterator[RenderableType]:
    from onceflow.cli.shared.picture import arrow, box
    from onceflow.contracts.target_block import SenderBlock
    from onceflow.pipeline.analysis.explain import Passage, Station
    from onceflow.protocol.identity import DELIVERIES_TOPIC

    source, batch, retry = delivery.source, delivery.batch, delivery.retry
    topics = f"topic {', '.join(source.topics)}"
    columns = f"{source.format}: {source.columns.columns_ddl}" if source.ddl else "as they came"
    yield box(Station(topics, (columns,)))
    yield from arrow(Passage("committed records, each once", "repeats are discarded"))
    tries = "until it works" if retry.attempts is None else f"{retry.attempts} times"
    most = f"{batch.max_records:,} records or {batch.max_bytes / 2**20:g} MiB"
    span = f"{retry.delay_ms / 1000:g} to {retry.max_delay_ms / 1000:g} s"
    facts: tuple[str, ...] = (
        f"reads as group {delivery.group}",
        f"writes at most {most} at once, and waits {batch.max_delay_ms:,} ms for them",
        f"tries a target that fails again {tries}, after {span}",
        _rejection(delivery),
    )
    if (age_ms := delivery.when_behind.max_age_ms) is not None:
        facts += (f"drops records that have waited for longer than {age_ms / 1000:,g} s",)
    yield box(Station(f"delivery {delivery.name}", facts))
    guarantee = delivery.guarantee()
    block = delivery.to.block
    if isinstance(block, SenderBlock):
        step, keeps = "the position moves after the answers", f"the topic {DELIVERIES_TOPIC} keeps"
    else:
        step, keeps = "records and position in one step", "keeps"
    yield from arrow(Passage(str(guarantee), step))
    yield box(Station(block.describe(), (f"{keeps} the position of the delivery",)))
    for reason in guarantee.reasons:
        yield f"\nnot more: {reason}"


def _rejection(delivery: Delivery) -> str:
    if delivery.rejection == "dead_letter" and delivery.dead_letter is not None:
        return f"rejected records go to the topic {delivery.dead_letter.topic}"
    done = {"drop": "are dropped and counted", "fail": "stop it"}
    return f"rejected records {done[delivery.rejection]}"


def _print_facts(facts: dict[str, Any]) -> None:
    from rich.text import Text

    from onceflow.cli.shared.standing import inputs_table, notes_on, place_of
    from onceflow.cli.shared.terminal import Terminal

    console = Terminal()
    console.print(Text.assemble((facts["delivery"], "bold"), f" to {facts['to']}"))
    console.print(Text(f"  {facts['guarantee']}"))
    style = "" if facts["target"] == "well" else "yellow"
    console.print(Text(f"  target: {facts['target']}", style=style))
    known = facts["instances"]
    console.print(f"  instances: {'unknown' if known is None else known}")
    for line in notes_on(facts):
        console.print(Text(f"  {line}"))
    console.print(inputs_table(facts["topics"], {"topic": place_of}))
