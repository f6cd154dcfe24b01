"""`onceflow acls`: the rights that running a pipeline needs, or reading its output."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json
from onceflow.clock import SystemClock
from onceflow.contracts.connector import PipelineTopics, Right, Task
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.pipeline.file.loader import PipelineFile

GRANT_TIMEOUT_S = 30.0


def acls(
    file: Annotated[Path, typer.Argument(help="The pipeline file.")],
    *,
    tasks: Annotated[
        list[str],
        typer.Option(
            "--for",
            metavar="TASK",
            help="What to allow: `run`, `create`, `verify`, `resend`, `set` or"
            " `consume:GROUP`. Can be repeated.",
        ),
    ] = ["run", "create"],  # noqa: B006  typer does not change it
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
    """List the broker rights that a pipeline needs, or grant them.

    Only `--grant` changes anything, and it takes no rights away.
    """
    from onceflow.pipeline.file.loader import load_pipeline

    if grant is not None and not re.fullmatch(r"User:\S+", grant):
        raise ConfigError("not a principal", subject=grant, expected="User:NAME")
    connector = kafka()
    topics = topics_of(load_pipeline(file))
    wanted = [_task(text) for text in tasks]
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
        expected = "run, create, verify, resend, set or consume:GROUP"
        raise ConfigError("cannot allow this", subject=text, expected=expected)
    return Task(name), group


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
