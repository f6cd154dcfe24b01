"""`onceflow parameters`: change and show the values that a pipeline reads by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.cli.operate.target import file_of
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json
from onceflow.clock import Deadline, SystemClock
from onceflow.errors import ConfigError, Fault, unknown_name

if TYPE_CHECKING:
    from onceflow.contracts.connector import Broker
    from onceflow.pipeline.file.model import Pipeline

TIMEOUT_S = 30.0

group = typer.Typer(help="Change and show the parameters of a pipeline.", no_args_is_help=True)

PipelineFileArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help="Its file.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the parameter.")]


@group.command("set")
def set_(
    pipeline: PipelineFileArgument,
    name: NameArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON; text may lack its quotes.")],
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Send a value. It holds from the next batch on."""
    found = _declaring(pipeline, name)
    sent = _checked(found, name, value)
    with _broker(bootstrap_servers, config) as (broker, deadline):
        _send(broker, found, name, sent.encode(), deadline)
    typer.echo(f"{name} = {sent}, from the next batch on")


@group.command()
def unset(
    pipeline: PipelineFileArgument,
    name: NameArgument,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Go back to the default of the pipeline file. It holds from the next batch on."""
    found = _declaring(pipeline, name)
    with _broker(bootstrap_servers, config) as (broker, deadline):
        _send(broker, found, name, None, deadline)
    typer.echo(f"{name} has its default, from the next batch on")


@group.command()
def get(
    pipeline: PipelineFileArgument,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Default: all.")] = None,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Show the values of the last committed batch, and the batch from which each holds.

    The batch is known as far back as the ledger has its entries.
    """
    from onceflow.protocol.identity import DRIVER_SLOT

    found = _declaring(pipeline, name)
    connection = settings_of(bootstrap_servers, config).connection()
    with closing(kafka().ledger(found.name, connection)) as ledger:
        heads = [*ledger.history(DRIVER_SLOT, SystemClock().within(TIMEOUT_S))]
    kept = [(each.batch.batch_id, each.plan.parameters) for each in heads]
    rows = [row for row in _rows(found, kept) if name in {None, row["name"]}]
    if output is ResultFormat.JSON:
        print_json(rows)
        return
    for row in rows:
        typer.echo(f"{row['name']} = {row['value']} ({_since(row)})")


def _rows(pipeline: Pipeline, kept: list[tuple[int, Any]]) -> Iterator[dict[str, Any]]:
    now = kept[-1][1] if kept else {}
    texts = pipeline.declared_parameters.texts(now)
    for name, value in texts.items():
        since = None
        for batch_id, values in reversed(kept):
            if values.get(name) != now.get(name):
                break
            since = batch_id
        yield {"name": name, "value": value, "is_default": name not in now, "since_batch": since}


def _since(row: dict[str, Any]) -> str:
    what = "default" if row["is_default"] else "set"
    batch = row["since_batch"]
    return what if batch is None or batch < 0 else f"{what}, at least since batch {batch}"


def _declaring(text: str, name: str | None) -> Pipeline:
    from onceflow.pipeline.file.loader import load_pipeline

    pipeline = load_pipeline(file_of(text)).pipeline
    if pipeline.parameters is None:
        raise ConfigError("the pipeline has no parameters", subject=pipeline.name)
    if name is not None and name not in pipeline.declared_parameters.declared:
        known = [*pipeline.declared_parameters.declared]
        _refuse(pipeline, unknown_name("no parameter is called", name, known))
    return pipeline


def _checked(pipeline: Pipeline, name: str, value: str) -> str:
    """JSON of the parameter's type. Text without quotes is what a shell leaves of it."""
    declared = pipeline.declared_parameters.declared[name]
    try:
        declared.text(value.encode())
    except ValueError as error:
        quoted = json.dumps(value)
        try:
            declared.text(quoted.encode())
        except ValueError:
            _refuse(pipeline, Fault(str(error), name))
        return quoted
    return value


def _refuse(pipeline: Pipeline, fault: Fault) -> None:
    raise ConfigError("parameter refused", subject=pipeline.name, faults=(fault,))


@contextmanager
def _broker(bootstrap_servers: str | None, config: Any) -> Iterator[tuple[Broker, Deadline]]:
    connection = settings_of(bootstrap_servers, config).connection()
    deadline = SystemClock().within(TIMEOUT_S)
    with closing(kafka().broker(connection)) as broker:
        broker.brokers(deadline)
        yield broker, deadline


def _send(
    broker: Broker, pipeline: Pipeline, name: str, value: bytes | None, deadline: Deadline
) -> None:
    from onceflow.runtime.start.preflight import control_fault

    topic = pipeline.parameters.topic if pipeline.parameters else ""
    found = broker.topic(topic, deadline)
    if fault := control_fault(found):
        _refuse(pipeline, fault)
    if found is None:
        raise ConfigError(
            "the topic of parameters does not exist",
            subject=topic,
            then="start the pipeline, which creates it, or create it: one partition, compacted",
        )
    broker.publish(topic, [(name.encode(), value)], deadline)
