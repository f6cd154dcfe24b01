"""`onceflow consume`: read a topic as a user would, or prove that its history is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.cli.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.output import OutputFormat, OutputOption
from onceflow.errors import ConfigError
from onceflow.ops.texts import on_one_line, text_of

if TYPE_CHECKING:
    from onceflow.contracts.connector import ReadRecord


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("consume")(consume)


def consume(  # noqa: PLR0913  options of a command line
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    *,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Start with the oldest record, not the next new one."
        ),
    ] = False,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="Stop after this many records.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", min=0, help="Stop after this many seconds without a new record."),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read the whole topic, discard repeats, and compare with the ledger.",
        ),
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Pipeline whose ledger --verify reads. Default: the topic's name."
        ),
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Print the committed records of a topic. With --verify, exits with 7 if one is missing."""
    from onceflow.cli.tail import TopicTail
    from onceflow.cli.verification import Verification
    from onceflow.clock import SystemClock
    from onceflow.contracts.connector import find_connector

    if verify and (maximum is not None or timeout is not None):
        raise ConfigError("--verify reads the whole topic", expected="neither --max nor --timeout")
    connection = settings_of(bootstrap_servers, config).connection()
    connector = find_connector("kafka")
    with closing(connector.broker(connection)) as broker:
        tail = TopicTail(broker, topic, SystemClock())
        tail.open(from_beginning=from_beginning or verify)
        if not verify:
            for record in islice(tail.follow(timeout), maximum):
                typer.echo(shown(record, output))
            return
        with closing(connector.ledger(pipeline or topic, connection)) as ledger:
            name, is_named = pipeline or topic, pipeline is not None
            verification = Verification(tail, ledger, name, is_named)
            for record in verification.records():
                typer.echo(shown(record, output))
        summary = verification.summary()
        is_text = output is OutputFormat.TEXT
        typer.echo(summary_text(summary) if is_text else json.dumps(summary), err=True)
        verification.check()


_ALWAYS = ("repeats_discarded", "gaps")
_SEEN = {
    "repeats_discarded": "repeats discarded",
    "gaps": "gaps",
    "divergences": "divergences",
    "foreign": "records of other writers",
    "new_lineages": "restarts without a ledger",
}


def summary_text(summary: Mapping[str, Any]) -> str:
    """What was verified, in a line for people."""
    told = {name: word for name, word in _SEEN.items() if summary[name] or name in _ALWAYS}
    seen = ", ".join(f"{summary[name]:,} {word}" for name, word in told.items())
    topic, records, ledger = (summary[name] for name in ("topic", "records", "ledger"))
    return f"{topic}: {records:,} records, {seen}; ledger: {ledger}"


def shown(record: ReadRecord, output: OutputFormat) -> str:
    """A record as one line."""
    if output is OutputFormat.TEXT:
        key = "" if record.key is None else f"{on_one_line(str(text_of(record.key)))}  "
        value = on_one_line(str(text_of(record.value)))
        return f"{record.partition}@{record.offset}  {key}{value}"
    fields: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": text_of(record.key),
        "value": text_of(record.value),
    }
    return json.dumps(fields)
