"""`onceflow consume`: print the records of a topic, or all of it and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat
from onceflow.clock import Clock, SystemClock
from onceflow.errors import ConfigError
from onceflow.texts import on_one_line, text_of

if TYPE_CHECKING:
    from onceflow.contracts.connector import Broker
from onceflow.contracts.record import Record

ANSWER_TIMEOUT_S = 60.0
"""For one look-up or one slice of records."""
IDLE_PAUSE_S = 0.2
"""Between two looks for new records: quick for a person, nothing for a broker."""
SLICE_OFFSETS = 20_000
"""Offsets of one partition that are read before another partition has its turn."""


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
            help="Print the whole topic without repeats, and compare it with the ledger as"
            " `ledger verify` does.",
        ),
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Pipeline whose ledger --verify reads. Default: the topic's name."
        ),
    ] = None,
    output: OutputOption = ResultFormat.TEXT,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Print the committed records of a topic. With --verify, exits with 7 if one is missing."""
    from onceflow.cli.operate.ledger import compare, report

    settings = settings_of(bootstrap_servers, config)

    def show(record: Record) -> None:
        typer.echo(shown(record, output))

    if verify:
        if maximum is not None or timeout is not None:
            expected = "neither --max nor --timeout"
            raise ConfigError("--verify reads the whole topic", expected=expected)
        found = compare(pipeline or topic, settings, topic, show)
        report(found, output, topic)
        return
    with closing(kafka().broker(settings.connection())) as broker:
        records = follow(
            broker, topic, SystemClock(), from_beginning=from_beginning, timeout_s=timeout
        )
        shown_count = 0
        for record in islice(records, maximum):
            show(record)
            shown_count += 1
    if not shown_count and not from_beginning:
        hint = "no new record came; --from-beginning prints those that are there"
        typer.echo(f"onceflow: {hint}", err=True)


def follow(
    broker: Broker, topic: str, clock: Clock, *, from_beginning: bool, timeout_s: float | None
) -> Iterator[Record]:
    """Committed records of a topic as they come, without a consumer group.

    Ends when none has come for `timeout_s`; without one, never.

    Raises:
        ConfigError: the topic does not exist.
        DeadlineError: no broker answers.
    """

    def bounds() -> Mapping[int, tuple[int, int]]:
        offsets = broker.offsets(topic, clock.within(ANSWER_TIMEOUT_S))
        return {p: (start, stable_end) for p, (start, stable_end, _) in offsets.items()}

    broker.brokers(clock.within(ANSWER_TIMEOUT_S))
    if not (found := bounds()):
        raise ConfigError("the topic does not exist", subject=topic)
    position = {p: start if from_beginning else end for p, (start, end) in found.items()}
    last_s = clock.monotonic_s()
    while timeout_s is None or clock.monotonic_s() - last_s < timeout_s:
        ends = {p: end for p, (_, end) in bounds().items()}
        while ranges := _slices(position, ends):
            for record in broker.read(topic, ranges, clock.within(ANSWER_TIMEOUT_S)):
                yield record
                last_s = clock.monotonic_s()
            position |= {p: end for p, (_, end) in ranges.items()}
        clock.sleep(IDLE_PAUSE_S)


def _slices(position: Mapping[int, int], ends: Mapping[int, int]) -> Mapping[int, tuple[int, int]]:
    """Choose what to read next: a slice of each partition that is not at its end."""
    return {
        p: (start, min(ends[p], start + SLICE_OFFSETS))
        for p, start in position.items()
        if start < ends[p]
    }


def shown(record: Record, output: ResultFormat) -> str:
    """A record as one line."""
    if output is ResultFormat.TEXT:
        key = "" if record.key is None else f"{on_one_line(str(text_of(record.key)))}  "
        value = on_one_line(str(text_of(record.value)))
        return f"{record.partition}@{record.offset}  {key}{value}"
    fields = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": text_of(record.key),
        "value": text_of(record.value),
    }
    return json.dumps(fields)
