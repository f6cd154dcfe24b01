"""Commands for gateways. Their contract is `Commands`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onceflow.cli.shared.options import kafka
from onceflow.cli.shared.output import ResultFormat, print_json
from onceflow.errors import ConfigError
from onceflow.gateway import loader

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onceflow.clock import Deadline
    from onceflow.contracts.connector import Topics
    from onceflow.gateway.model import Gateway
    from onceflow.gateway.survey import GatewayFacts
    from onceflow.protocol.guarantee import Guarantee
    from onceflow.repair.dead_letters import Resent
    from onceflow.settings import Settings


def run(file: Path, settings: Settings, *, is_until_caught_up: bool) -> None:
    from threading import Event

    from onceflow.cli.shared.report import open_report
    from onceflow.clock import SystemClock
    from onceflow.gateway.run import Around, run_gateway
    from onceflow.serve.ending import drain_on_signals

    if is_until_caught_up:
        what = "a gateway has nothing to catch up with"
        raise ConfigError(what, expected="no option --until", then="nothing was started")
    gateway, clock, stop = loader.load_gateway(file), SystemClock(), Event()
    with open_report(clock) as report, drain_on_signals(stop.set):
        connection = settings.connection()
        around = Around(kafka(), connection, settings.gateway, clock, report, stop)
        run_gateway(gateway, around)


def serve(files: Sequence[Path], overrides: Mapping[str, str | None], config: Path | None) -> None:
    import os
    from contextlib import ExitStack
    from threading import Event

    from onceflow.cli.shared.report import open_report
    from onceflow.clock import SystemClock
    from onceflow.config import read_settings
    from onceflow.gateway.run import Around
    from onceflow.gateway.serving import GatewayService
    from onceflow.serve.ending import drain_on_signals

    settings, effective = read_settings(os.environ, overrides, config)
    clock = SystemClock()
    with ExitStack() as stack:
        report = stack.enter_context(open_report(clock))
        around = Around(kafka(), settings.connection(), settings.gateway, clock, report, Event())
        service = GatewayService(files, (settings, effective), around, report)
        if settings.control is not None:
            from onceflow.control.api import controlled
            from onceflow.gateway.views import GatewayViews

            views = GatewayViews(service)
            stack.enter_context(controlled(views, settings.control, report))
        stack.enter_context(drain_on_signals(service.fleet.request_drain))
        service.run()


def explain(file: Path, output: ResultFormat) -> None:
    gateway = loader.load_gateway(file)
    guarantee = gateway.guarantee()
    if output is ResultFormat.JSON:
        found = {
            "gateway": gateway.name,
            "topics": {
                name: {"columns": block.columns.columns_ddl, "key": block.key}
                for name, block in gateway.topics.items()
            },
            "guarantee": guarantee.level.value,
            "scope": guarantee.scope,
            "reasons": [str(reason) for reason in guarantee.reasons],
            "remember_ms": gateway.remember.for_ms,
            "slots": gateway.remember.slots,
        }
        print_json(found)
        return
    from onceflow.cli.shared.picture import WIDTH
    from onceflow.cli.shared.terminal import Terminal

    console = Terminal(width=WIDTH, highlight=False)
    for part in _picture(gateway):
        console.print(part, soft_wrap=isinstance(part, str))


def guarantee_of(file: Path) -> Guarantee:
    return loader.load_gateway(file).guarantee()


def topics(file: Path) -> Topics:
    from onceflow.contracts.connector import GatewayTopics

    gateway = loader.load_gateway(file)
    return GatewayTopics(gateway.name, [*gateway.topics])


def letter_topic(file: Path) -> str:
    raise ConfigError(
        "a gateway has no dead letters",
        subject=str(file),
        found="a record that does not fit is refused with 422, and the answer says why",
        then="`onceflow why-stuck` tells how many were refused",
    )


def replay(file: Path, settings: Settings, deadline: Deadline) -> Resent:
    raise ConfigError(
        "a gateway has no dead letters",
        subject=str(file),
        then="nothing was sent; the client whose record was refused posts it again",
    )


def status(file: Path, settings: Settings, output: ResultFormat) -> None:
    from onceflow.gateway.survey import fields_of

    facts = _facts(file, settings)
    found = fields_of(facts)
    if output is ResultFormat.JSON:
        print_json(found)
        return
    from onceflow.cli.shared.terminal import say

    members = "unknown" if facts.instances is None else facts.instances
    say((facts.gateway.name, "bold"), f": {members} instances")
    for number, address in found["slots"].items():
        say(f"  slot {number}: claimed last by {address or 'no instance'}")
    for address, why in found["not_ready"].items():
        say(f"  not ready: {address}: {why}")
    for code, count in found["refused"].items():
        say(f"  answered {code} in the last minutes: {count:,} posts")
    for what, why in found["not_seen"].items():
        say(f"  not seen: {what}: {why}")


def why_stuck(file: Path, settings: Settings, output: ResultFormat) -> None:
    from onceflow.cli.shared.findings import tell
    from onceflow.gateway.diagnosis import diagnose

    facts = _facts(file, settings)
    tell(facts.gateway.name, diagnose(facts), facts, output)


def _facts(file: Path, settings: Settings) -> GatewayFacts:
    from onceflow.clock import SystemClock
    from onceflow.gateway.survey import opened_survey

    gateway = loader.load_gateway(file)
    with opened_survey(
        gateway, kafka(), settings.connection(), SystemClock(), settings.gateway.ca_file
    ) as survey:
        return survey.facts()


def model() -> type[Gateway]:
    from onceflow.gateway.model import Gateway

    return Gateway


def _picture(gateway: Gateway) -> Iterator[RenderableType]:
    from onceflow.cli.shared.picture import arrow, box
    from onceflow.contracts.values import duration_text
    from onceflow.pipeline.analysis.explain import Passage, Station

    limits, remember = gateway.limits, gateway.remember
    span = duration_text(remember.for_ms)
    facts = (
        f"at most {limits.records:,} records and {limits.body_bytes:,} bytes in one post",
        f"keys are remembered for {span}, {remember.at_most:,} at most, in {remember.slots} slots",
    )
    yield box(Station(f"gateway {gateway.name}", facts))
    yield from arrow(Passage(str(gateway.guarantee()), "answered when it is committed"))
    for name, block in gateway.topics.items():
        columns = block.columns.columns_ddl if block.ddl else "any JSON object"
        key = f"key: {block.key}" if block.key else "no key"
        yield box(Station(f"topic {name}", (columns, key)))
    for reason in gateway.guarantee().reasons:
        yield f"\nnot more: {reason}"
