"""`onceflow dead-letter`: what was rejected and why; send it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.kinds.commands import commands_for
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json, print_result
from onceflow.clock import Deadline, SystemClock
from onceflow.errors import ConfigError
from onceflow.texts import on_one_line

if TYPE_CHECKING:
    from onceflow.contracts.connector import Broker
    from onceflow.repair.dead_letters import Filed

TIMEOUT_S = 600.0
"""For reading a whole topic of dead letters, or sending it again."""
MAX_TEXT = 60
"""Characters of a reason in a table; `show` has all of it."""

FileArgument = Annotated[Path, typer.Argument(help="The file: it names the topic of dead letters.")]


group = typer.Typer(no_args_is_help=True, help="List, show and replay rejected records.")


@group.command("list")
def list_letters(
    file: FileArgument,
    reason: Annotated[
        str | None, typer.Option(help="Only records rejected for this reason.")
    ] = None,
    maximum: Annotated[
        int, typer.Option("--max", min=1, help="Show at most this many, the oldest first.")
    ] = 100,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """List rejected records, the oldest of each partition first."""
    from onceflow.repair.dead_letters import fields_of, read_letters

    with _opened(file, bootstrap_servers, config) as (broker, topic):
        letters = read_letters(broker, topic, {}, _deadline())
        wanted = (filed for filed in letters if reason in {None, filed[1].reason})
        found = [*islice(wanted, maximum)]
    if output is ResultFormat.TEXT:
        _print_table(found)
    else:
        for filed in found:
            print_json(fields_of(filed))


@group.command()
def show(
    file: FileArgument,
    partition: Annotated[int, typer.Argument(help="Partition of the dead-letter topic.")],
    offset: Annotated[int, typer.Argument(help="Offset in that partition.")],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Show one rejected record and why it was rejected."""
    from onceflow.protocol.dead_letter import DeadLetter
    from onceflow.repair.dead_letters import fields_of

    with _opened(file, bootstrap_servers, config) as (broker, topic):
        offsets = broker.offsets(topic, _deadline())
        first, stable_end, _ = offsets.get(partition, (0, 0, 0))
        records = []
        if first <= offset < stable_end:
            here = {partition: (offset, offset + 1)}
            records = [*broker.read(topic, here, _deadline())]
        if not records:
            raise ConfigError(
                "there is no dead letter",
                subject=f"offset {offset} of {topic}-{partition}",
                expected=f"an offset in [{first}, {stable_end}) that `dead-letter list` names",
            )
    (record,) = records
    fields = fields_of((record, DeadLetter.from_record(record.key, record.value, record.headers)))
    if output is ResultFormat.JSON:
        print_json(fields)
        return
    for name, value in fields.items():
        shown = on_one_line(value) if isinstance(value, str) else json.dumps(value)
        typer.echo(f"{name:<16}{shown}")


@group.command()
def replay(
    file: FileArgument,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Send rejected records to their topics again, each once; of a delivery, to its target.

    It can be interrupted and repeated at any point. Rejected rows of the result stay: they came
    from no topic. So do letters that had no room for their record.
    """
    from onceflow.repair.dead_letters import opened_letters

    settings = settings_of(bootstrap_servers, config)
    if (commands := commands_for(file)) is not None:
        done = commands.replay(file, settings, _deadline())
    else:
        from onceflow.pipeline.file.loader import load_pipeline

        pipeline = load_pipeline(file).pipeline
        with opened_letters(pipeline, kafka(), settings.connection(), _deadline()) as resender:
            done = resender.resend(_deadline())
    text = f"{done.sent:,} records sent again, {done.kept:,} letters kept"
    print_result(output, {"sent": done.sent, "kept": done.kept}, text)


@contextmanager
def _opened(
    file: Path, bootstrap_servers: str | None, config: Path | None
) -> Iterator[tuple[Broker, str]]:
    """Lend brokers, and the topic of dead letters that a file names."""
    from onceflow.repair.dead_letters import letter_topic_of

    settings, commands = settings_of(bootstrap_servers, config), commands_for(file)
    if commands is not None:
        topic = commands.letter_topic(file)
    else:
        from onceflow.pipeline.file.loader import load_pipeline

        pipeline = load_pipeline(file).pipeline
        topic = letter_topic_of("pipeline", pipeline.name, pipeline.dead_letter)
    with closing(kafka().broker(settings.connection())) as broker:
        # A question about a topic waits much longer for brokers that are not there.
        broker.brokers(_deadline())
        yield broker, topic


def _deadline() -> Deadline:
    return SystemClock().within(TIMEOUT_S)


def _print_table(found: list[Filed]) -> None:
    from rich.table import Table

    from onceflow.cli.shared.terminal import Terminal

    table = Table("partition", "offset", "reason", "from", "batch", "what")
    for record, letter in found:
        place = f"{letter.topic}-{letter.partition}@{letter.offset}" if letter.source else "result"
        text = letter.text if len(letter.text) <= MAX_TEXT else f"{letter.text[:MAX_TEXT]}..."
        partition, offset, batch = map(str, (record.partition, record.offset, letter.batch_id))
        table.add_row(partition, offset, letter.reason, place, batch, text)
    Terminal().print(table)
