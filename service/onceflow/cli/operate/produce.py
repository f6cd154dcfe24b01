"""`onceflow produce`: write lines to a topic, as any ordinary producer would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from select import select
from typing import Annotated, BinaryIO

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import TopicSpec
from onceflow.errors import ConfigError, RecordError

CHUNK_LINES = 50_000
"""Lines that are held in memory and acknowledged together, at most."""
PATIENCE_S = 1.0
"""A line waits this long for more of them, so that a slow feed is seen as it comes."""
BLOCK_BYTES = 1 << 20
CHUNK_TIMEOUT_S = 120.0
"""For one chunk; a broker on this machine needs a second."""


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to write to.")],
    file: Annotated[
        Path | None, typer.Argument(help="One record per line. Default: standard input.")
    ] = None,
    *,
    key: Annotated[
        str | None, typer.Option(metavar="FIELD", help="JSON field to use as the record's key.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="If the topic does not exist, create it with this many partitions."
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Write each line of a file or a pipe as one record, within a second."""
    connection = settings_of(bootstrap_servers, config).connection()
    clock = SystemClock()
    read = written = 0
    with _opened(file) as input_, closing(kafka().broker(connection)) as broker:
        deadline = clock.within(CHUNK_TIMEOUT_S)
        broker.brokers(deadline)
        if partitions is not None:
            broker.create_topic(TopicSpec(topic, partitions), deadline)
        elif broker.topic(topic, deadline) is None:
            then = "--partitions N creates it"
            raise ConfigError("the topic does not exist", subject=topic, then=then)
        for lines in chunks(input_.fileno(), clock):
            records = [keyed(number, line, key) for number, line in numbered(lines, read)]
            read += len(lines)
            written += broker.publish(topic, records, clock.within(CHUNK_TIMEOUT_S))
    typer.echo(f"{written:,} records written to {topic}")


def chunks(descriptor: int, clock: Clock) -> Iterator[Sequence[bytes]]:
    """Lines of a file or a pipe to its end, as many at a time as come within `PATIENCE_S`."""
    lines: list[bytes] = []
    unfinished = [b""]
    patience = clock.within(PATIENCE_S)
    while True:
        if lines and not select([descriptor], [], [], patience.remaining_s())[0]:
            yield lines
            lines = []
        # Without lines, wait for the input as long as it takes.
        if not (block := os.read(descriptor, BLOCK_BYTES)):
            break
        if not lines:
            patience = clock.within(PATIENCE_S)
        first, *others = block.split(b"\n")
        unfinished.append(first)
        if others:
            lines += [b"".join(unfinished), *others[:-1]]
            unfinished = [others[-1]]
        while len(lines) >= CHUNK_LINES or (lines and patience.is_over):
            yield lines[:CHUNK_LINES]
            lines = lines[CHUNK_LINES:]
    if last := b"".join(unfinished):
        lines.append(last)
    if lines:
        yield lines


def numbered(lines: Iterable[bytes], before: int = 0) -> Iterator[tuple[int, bytes]]:
    """Lines without their ends, each with its number in the file; empty ones are left out."""
    for number, line in enumerate(lines, start=before + 1):
        if text := line.rstrip(b"\r\n"):
            yield number, text


def keyed(number: int, line: bytes, key: str | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line. A key that is text stays as it is; others become JSON.

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


def _opened(file: Path | None) -> AbstractContextManager[BinaryIO]:
    if file is None:
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        found = error.strerror or type(error).__name__
        raise ConfigError("cannot read the file", subject=str(file), found=found) from error
