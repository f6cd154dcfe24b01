"""`onceflow produce`: write lines to a topic, as any ordinary producer would."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from onceflow.cli.options import BootstrapServers, ConfigFile, settings_of
from onceflow.errors import ConfigError, RecordError

CHUNK_LINES = 50_000
"""Lines that are held in memory and acknowledged together."""
CHUNK_TIMEOUT_S = 120.0
"""For one chunk; a broker on this machine needs a second."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("produce")(produce)


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to write to.")],
    file: Annotated[
        Path | None, typer.Argument(help="One record per line. Default: standard input.")
    ] = None,
    *,
    key: Annotated[str | None, typer.Option(help="JSON field to use as the record's key.")] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="If the topic does not exist, create it with this many partitions."
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Write each line of a file as one record."""
    from onceflow.clock import Deadline, SystemClock
    from onceflow.contracts.connector import TopicSpec, find_connector

    connection = settings_of(bootstrap_servers, config).connection()
    clock = SystemClock()
    written = 0
    with _lines_of(file) as lines, closing(find_connector("kafka").broker(connection)) as broker:
        records = (keyed(number, line, key) for number, line in numbered(lines))
        deadline = Deadline.after(clock, CHUNK_TIMEOUT_S)
        broker.brokers(deadline)
        if partitions is not None:
            broker.create_topic(TopicSpec(topic, partitions), deadline)
        elif broker.topic(topic, deadline) is None:
            raise ConfigError(
                "the topic does not exist",
                subject=topic,
                then="--partitions N creates it",
            )
        while chunk := list(islice(records, CHUNK_LINES)):
            written += broker.publish(topic, chunk, Deadline.after(clock, CHUNK_TIMEOUT_S))
    typer.echo(f"{written:,} records written to {topic}")


def numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines without their ends, each with its number from 1; empty ones are left out."""
    for number, line in enumerate(lines, start=1):
        if text := line.rstrip(b"\r\n"):
            yield number, text


def keyed(number: int, line: bytes, key: str | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line. A key is text as it stands, and JSON otherwise.

    Raises:
        RecordError: the line holds no such field.
    """
    if key is None:
        return None, line
    try:
        found = json.loads(line)[key]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            "a line has no key",
            subject=f"line {number}",
            expected=f"a JSON object with `{key}`",
            then="stopped; lines before this one may have been written",
        ) from error
    return (found if isinstance(found, str) else json.dumps(found)).encode(), line


def _lines_of(file: Path | None) -> AbstractContextManager[BinaryIO]:
    if file is None:
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise ConfigError(
            "cannot read the file",
            subject=str(file),
            found=error.strerror or type(error).__name__,
        ) from error
