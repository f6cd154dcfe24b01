"""`onceflow state`: reads the state of a pipeline, as of a batch, and moves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.cli.operate.target import file_of
from onceflow.cli.shared.options import BootstrapServers, ConfigFile, load_allowed, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json, print_result
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.runtime.state.reader import StateReader

GET_TIMEOUT_S = 300.0
"""For a key that is not given as a whole, for which every row is examined."""

group = typer.Typer(
    no_args_is_help=True, help="Read the state of a pipeline, as of a batch, or move it."
)

PipelineFileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline file.")]
OperatorOption = Annotated[
    str | None,
    typer.Option(
        "--operator", "--name", help="Name or number in `state list`. Default: the only one."
    ),
]
BatchOption = Annotated[
    int | None, typer.Option(help="As of this batch. Default: the newest one that is done.", min=0)
]


@group.command("list")
def list_operators(
    file: PipelineFileArgument,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """List what has state: its columns, and the batches as of which it can be read."""
    with _opened(file, config) as reader:
        found = [reader.describe(operator) for operator in reader.layout.operators()]
    if output is ResultFormat.JSON:
        _print_all(found)
        return
    headings = ("operator", "name", "partitions", "batches", "variable", "key", "value")
    rows = []
    for operator in found:
        first, last = operator["first_batch"], operator["last_batch"]
        for variable in operator["variables"]:
            columns = (", ".join(f"{n} {t}" for n, t in variable[p].items()) for p in _PARTS)
            named = (operator["operator"], operator["name"], operator["partitions"])
            rows.append([*named, f"{first}-{last}", variable["variable"], *columns])
    _print_table(headings, rows)


@group.command()
def get(
    file: PipelineFileArgument,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="A column of the key, such as `page=a` or `window.start=2026-01-01T00:00:00Z`;"
            " without `=`, null. Give all columns to look up a row, some to search for rows.",
        ),
    ] = None,
    operator: OperatorOption = None,
    batch: BatchOption = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Show the rows of one key, at most 1,000."""
    from onceflow.runtime.state.reader import parse_key

    parsed = parse_key(key or [])
    with _opened(file, config) as reader:
        found, as_of = reader.find(operator, batch)
        deadline = SystemClock().within(GET_TIMEOUT_S)
        rows = reader.get(found, parsed, as_of, deadline)
    if output is ResultFormat.JSON:
        _print_all({"batch": as_of, **row} for row in rows)
    elif rows:
        _print_rows(rows)
    else:
        typer.echo(f"no such key in {found.name} as of batch {as_of}")


@group.command()
def export(
    file: PipelineFileArgument,
    out: Annotated[Path, typer.Option(help="Folder to make; it must not exist, or be empty.")],
    operator: OperatorOption = None,
    batch: BatchOption = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Write all rows as Parquet: a file for each partition, with `key` and `value`."""
    from onceflow.runtime.state.export import export_state

    with _opened(file, config) as reader:
        found, as_of = reader.find(operator, batch)
        written = export_state(reader, found, as_of, out)
    fields = {"operator": found.name, "batch": as_of, "files": written, "out": str(out)}
    total = f"{sum(written.values()):,} rows in {len(written)} files"
    print_result(output, fields, f"{found.name} as of batch {as_of}: {total} in {out}")


@group.command()
def diff(
    file: PipelineFileArgument,
    before: Annotated[int, typer.Option("--from", help="As of this batch.", min=0)],
    after: Annotated[int, typer.Option("--to", help="And as of this one.", min=0)],
    operator: OperatorOption = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Show the rows that differ between two batches. Compares all of them."""
    with _opened(file, config) as reader:
        found = reader.operator(operator)
        for batch in (before, after):
            reader.layout.require_batch(found, batch)
        rows = reader.diff(found, before, after)
        if output is ResultFormat.JSON:
            _print_all(rows)
        else:
            _print_rows([*rows])


@group.command()
def size(
    file: PipelineFileArgument,
    operator: OperatorOption = None,
    batch: BatchOption = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Count rows and bytes in each partition. Reads all rows."""
    with _opened(file, config) as reader:
        found = reader.layout.operators() if operator is None else [reader.operator(operator)]
        sizes = [
            {"operator": each.name, "batch": as_of, **asdict(counted)}
            for each in found
            for as_of in [reader.layout.require_batch(each, batch)]
            for counted in reader.sizes(each, as_of)
        ]
    if output is ResultFormat.JSON:
        _print_all(sizes)
    else:
        headings = ("operator", "batch", "variable", "partition", "rows", "bytes")
        _print_table(headings, [[each[name] for name in headings] for each in sizes])


@group.command()
def migrate(  # noqa: PLR0913, PLR0917  options of a command line
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.")],
    reason: Annotated[str, typer.Option(help="Why; recorded in the ledger.")],
    shuffle_partitions: Annotated[
        int | None, typer.Option(help="Partitions of the state. Default: as many as it has.", min=1)
    ] = None,
    functions: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="[OLD[:NEW]=]MODULE:FUNCTION",
            help="A function that makes the state of an operator, row by row, for the query as it"
            " is now. Again for other operators.",
        ),
    ] = None,
    move: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD:NEW", help="State goes on as that of an operator named NEW."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="OLD", help="The state of this operator is dropped.")
    ] = None,
    begin: Annotated[
        list[str] | None, typer.Option(metavar="NEW", help="This operator begins without state.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="The new checkpoint. Default: the old one, `-`, and partitions or function."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Do all of it, then delete the copy.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Copy the checkpoint of a stopped pipeline, with its state for a changed query."""
    from onceflow.cli.pipeline.run import open_surroundings
    from onceflow.migrate import Migration
    from onceflow.run import Run
    from onceflow.runtime.state.transfer import Carry, Transfer

    settings = settings_of(bootstrap_servers, config)
    file = load_allowed(pipeline, settings)
    carried = [*map(Carry.changed, functions or ()), *map(Carry.moved, move or ())]
    transfer = Transfer(carried, drop or (), begin or ())
    if not (shuffle_partitions or transfer):
        expected = "--shuffle-partitions, --with, --move, --drop or --begin"
        raise ConfigError("there is nothing to do", expected=expected)
    named = [each.function.rpartition(":")[2] for each in carried if each.function]
    name = named[0] if named else shuffle_partitions or "changed"
    location = to or f"{file.pipeline.checkpoint_location}-{name}"
    with Run(file, open_surroundings(settings, SystemClock())) as run:
        migration = Migration(run, location, shuffle_partitions, transfer)
        head = migration.make(reason, is_rehearsal=dry_run)
    state, batch_id = migration.told, head.batch.batch_id
    fields = {"checkpoint": location, "batch_id": batch_id, "state": state, "dry_run": dry_run}
    then = f"name it in {pipeline}, then start the pipeline: `checkpoint: {location}`"
    told = [f"state of {operator}: {what}" for operator, what in state.items()]
    lines = [
        *(told or ["the same command has made it before; nothing was written"]),
        f"{head.note}, after batch {batch_id}",
        "dry run: the copy is deleted again" if dry_run else then,
    ]
    print_result(output, fields, "\n".join(lines))


_PARTS = ("key", "value")


@contextmanager
def _opened(file: str, config: Path | None) -> Iterator[StateReader]:
    from onceflow.runtime.state.bare_jvm import bare_jvm

    settings = settings_of(None, config)
    with ExitStack() as stack, ThreadPoolExecutor(1) as meanwhile:
        # It takes as long as the imports below, and the file.
        starting = meanwhile.submit(stack.enter_context, bare_jvm(settings.spark.driver_memory))
        from onceflow.pipeline.file.loader import load_pipeline
        from onceflow.runtime.spark.session import SessionSettings
        from onceflow.runtime.state.reader import opened_state

        location = load_pipeline(file_of(file)).pipeline.checkpoint_location
        session = SessionSettings(**settings.spark.model_dump())
        yield stack.enter_context(opened_state(location, session, starting.result()))


def _print_all(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        print_json(row)


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    flat = [dict(_flat(row)) for row in rows]
    headings = [*dict.fromkeys(name for row in flat for name in row)]
    _print_table(headings, [[row.get(name, "") for name in headings] for row in flat])


def _flat(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        # `key.page`, but `count`: what a value holds is what one looks for.
        within = path if name == "value" and not path else f"{path}{name}."
        if isinstance(value, dict):
            yield from _flat(value, within)
        else:
            yield f"{path}{name}", value


def _print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    from rich.table import Column, Table

    from onceflow.cli.shared.terminal import Terminal

    table = Table(*(Column(each) for each in headings), box=None, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*("null" if each is None else str(each) for each in row))
    Terminal().print(table)
