"""`onceflow consume`: print the records of a topic, or all of it and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat
from onceflow.clock import Clock, SystemClock
from onceflow.errors import ConfigError
from onceflow.texts import on_one_line, text_of

if TYPE_CHECKING:
    from onceflow.contracts.connector import Broker, ReadRecord

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

    def show(record: ReadRecord) -> None:
        typer.echo(shown(record, output))

    if verify:
        if maximum is not None or timeout is not None:
            expected = "neither --max nor --timeout"
            raise ConfigError("--verify reads the whole topic", expected=expected)
        found = compare(pipeline or topic, settings, topic, show)
        report(found, output, topic)
        return
    with closing(kafka().broker(settings.connection())) as broker:
        tail = TopicTail(broker, topic, SystemClock())
        tail.open(from_beginning=from_beginning)
        for record in islice(tail.follow(timeout), maximum):
            show(record)


@dataclass
class TopicTail:
    """The committed records of a topic from a position on, without a consumer group."""

    broker: Broker
    topic: str
    clock: Clock
    position: dict[int, int] = field(default_factory=dict)

    def open(self, *, from_beginning: bool) -> None:
        """Take the position up.

        Raises:
            ConfigError: the topic does not exist.
            DeadlineError: no broker answers.
        """
        self.broker.brokers(self.clock.within(ANSWER_TIMEOUT_S))
        bounds = self._bounds()
        if not bounds:
            raise ConfigError("the topic does not exist", subject=self.topic)
        self.position = {p: start if from_beginning else end for p, (start, end) in bounds.items()}

    def follow(self, timeout_s: float | None) -> Iterator[ReadRecord]:
        """Records as they come, until none has come for `timeout_s`; forever without one."""
        last_s = self.clock.monotonic_s()
        while timeout_s is None or self.clock.monotonic_s() - last_s < timeout_s:
            for record in self._to_end():
                yield record
                last_s = self.clock.monotonic_s()
            self.clock.sleep(IDLE_PAUSE_S)

    def _to_end(self) -> Iterator[ReadRecord]:
        """Records up to what is committed at the time of the call."""
        ends = {p: end for p, (_, end) in self._bounds().items()}
        while ranges := self._slices(ends):
            deadline = self.clock.within(ANSWER_TIMEOUT_S)
            yield from self.broker.read(self.topic, ranges, deadline)
            self.position |= {p: end for p, (_, end) in ranges.items()}

    def _slices(self, ends: Mapping[int, int]) -> Mapping[int, tuple[int, int]]:
        """Choose what to read next: a slice of each partition that is not at its end."""
        return {
            p: (start, min(ends[p], start + SLICE_OFFSETS))
            for p, start in self.position.items()
            if start < ends[p]
        }

    def _bounds(self) -> Mapping[int, tuple[int, int]]:
        offsets = self.broker.offsets(self.topic, self.clock.within(ANSWER_TIMEOUT_S))
        return {p: (start, stable_end) for p, (start, stable_end, _) in offsets.items()}


def shown(record: ReadRecord, output: ResultFormat) -> str:
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
