"""`onceflow acls`: the rights that a file needs to run, or readers of its output."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.kinds.commands import commands_for
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json
from onceflow.clock import SystemClock
from onceflow.contracts.connector import CarriageTopics, PipelineTopics, Right, Task, Topics
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.pipeline.file.loader import PipelineFile

GRANT_TIMEOUT_S = 30.0
AT_SOURCE = (Task.RUN, Task.CREATE)
AT_TARGET = (Task.TARGET, Task.CREATE_TARGET)
"""At the brokers of another cluster that a delivery writes to."""


def acls(
    file: Annotated[Path, typer.Argument(help="The file, of any kind.")],
    *,
    tasks: Annotated[
        list[str],
        typer.Option(
            "--for",
            metavar="TASK",
            help="What to allow: `run`, `create`, `verify`, `resend`, `set` or `consume:GROUP`;"
            " `target` and `create-target` at the brokers of another cluster that a delivery writes"
            " to. Can be repeated. Left out: all that a run needs, and with --grant `run` and"
            " `create`.",
        ),
    ] = [],  # noqa: B006  typer does not change it
    grant: Annotated[
        str | None,
        typer.Option(
            metavar="User:NAME", help="Grant the rights to this principal, such as `User:jane`."
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """List the broker rights that a file needs, or grant them.

    Only `--grant` changes anything, and it takes no rights away.
    """
    if grant is not None and not re.fullmatch(r"User:\S+", grant):
        raise ConfigError("not a principal", subject=grant, expected="User:NAME")
    connector, topics = kafka(), _topics(file)
    is_elsewhere = isinstance(topics, CarriageTopics) and topics.is_elsewhere
    default = [*AT_SOURCE, *(AT_TARGET if is_elsewhere and grant is None else ())]
    wanted = [_task(text) for text in tasks or default]
    at_target = [task in AT_TARGET for task, _ in wanted]
    if grant is not None and any(at_target) and not all(at_target):
        raise ConfigError(
            "these rights are of two clusters",
            expected="`target` and `create-target` alone, with `--bootstrap-servers` of the target",
            then="nothing was granted",
        )
    rights = [right for task, group in wanted for right in connector.rights(topics, task, group)]
    if grant is not None:
        connection = settings_of(bootstrap_servers, config).connection()
        deadline = SystemClock().within(GRANT_TIMEOUT_S)
        connector.grant(grant, rights, connection, deadline)
    if output is ResultFormat.JSON:
        for right in rights:
            print_json({**asdict(right), "granted": grant})
        return
    _print(rights)
    if grant is not None:
        typer.echo(f"{len(rights)} rights granted to {grant}")


def _task(text: str) -> tuple[Task, str]:
    """A task, and the group that it is for."""
    name, _, group = text.partition(":")
    if name not in {*Task} or bool(group) != (name == Task.CONSUME):
        expected = f"{', '.join(t for t in Task if t != Task.CONSUME)} or consume:GROUP"
        raise ConfigError("cannot allow this", subject=text, expected=expected)
    return Task(name), group


def _topics(file: Path) -> Topics:
    from onceflow.pipeline.file.loader import load_pipeline

    commands = commands_for(file)
    return commands.topics(file) if commands else topics_of(load_pipeline(file))


def topics_of(file: PipelineFile) -> PipelineTopics:
    """Collect the topics that a pipeline reads and writes."""
    pipeline = file.pipeline
    found = (source.block.kafka_topics() for source in pipeline.sources.values())
    reads = [topics for topics in found if topics is not None]
    tables = [s.initial_state.topic for s in pipeline.process.values() if s.initial_state]
    tables += pipeline.reference_topics
    others = {block.topic for block in (pipeline.dead_letter, pipeline.late) if block}
    return PipelineTopics(
        pipeline=pipeline.name,
        inputs=sorted({*(topic for read in reads for topic in read.names), *filter(None, tables)}),
        patterns=[read.pattern for read in reads if read.pattern is not None],
        output=pipeline.sink.kafka.topic,
        beside=sorted(others),
        controls=pipeline.control_topics,
    )


def _print(rights: list[Right]) -> None:
    from rich.table import Table

    from onceflow.cli.shared.terminal import LONGEST_LINE, Terminal

    table = Table(box=None, padding=(0, 1, 0, 0))
    for header in ("for", "resource", "name", "operation", "why"):
        table.add_column(header, no_wrap=header != "why")
    for right in rights:
        name = f"{right.name}*" if right.is_prefix else right.name
        table.add_row(right.task, right.resource, name, right.operation, right.why)
    # Names stay whole, whatever the terminal's width: they have to be copied.
    terminal = Terminal()
    widest = terminal.options.update(width=LONGEST_LINE)
    needed = terminal.measure(table, options=widest).minimum
    (Terminal(width=needed) if needed > terminal.width else terminal).print(table)
