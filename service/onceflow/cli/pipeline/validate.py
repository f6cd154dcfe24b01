"""`onceflow validate`: everything that can be known about files without running them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onceflow.cli.kinds.commands import commands_for, commands_of
from onceflow.cli.pipeline.analysis import analysed, analysis_session, has_spark
from onceflow.cli.pipeline.sarif import SarifLevel, SarifResult, sarif_log
from onceflow.cli.shared.options import ConfigFile, FileOnly, load_allowed, settings_of
from onceflow.cli.shared.output import fault_fields, print_json
from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onceflow.pipeline.analysis.explain import ReaderGuarantee
    from onceflow.pipeline.file.loader import PipelineFile
    from onceflow.protocol.guarantee import Guarantee
    from onceflow.settings import Settings


class VerdictFormat(StrEnum):
    """The format of the command's standard output."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


@dataclass(frozen=True)
class FileVerdict:
    """The verdict on one file.

    Args:
        faults: why it cannot run; empty if it can.
        waived: waivers of rules that it breaks, as text.
        is_analysed: whether Spark has looked at the query.
        readers: what each kind of reader gets; empty as long as that is not known.
        promise: of a file of another kind; None for a pipeline.
    """

    path: Path
    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()
    waived: tuple[str, ...] = ()
    is_analysed: bool = False
    readers: tuple[ReaderGuarantee, ...] = ()
    promise: Guarantee | None = None

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of readers of committed records, or of the file; None if not known."""
        if self.promise is not None:
            return self.promise
        committed = (r.guarantee for r in self.readers if r.reading == "read_committed")
        return next(committed, None)

    def to_json(self) -> Mapping[str, Any]:
        """As the JSON output shows it."""
        return {
            "file": str(self.path),
            "valid": not self.faults,
            "analysed": self.is_analysed,
            "guarantee": str(self.guarantee) if self.guarantee else None,
            "readers": [asdict(reader) for reader in self.readers],
            "faults": [fault_fields(fault) for fault in self.faults],
            "warnings": [fault_fields(warning) for warning in self.warnings],
            "waived": list(self.waived),
        }

    def findings(self) -> Iterator[SarifResult]:
        """As SARIF shows it: nothing, if nothing is to be said."""
        yield from (SarifResult(self.path, SarifLevel.ERROR, fault) for fault in self.faults)
        yield from (
            SarifResult(self.path, SarifLevel.WARNING, warning) for warning in self.warnings
        )


def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Files of any kind.")
    ] = None,
    output: Annotated[
        VerdictFormat, typer.Option("--output", "-o", help="Format of the results.")
    ] = VerdictFormat.TEXT,
    file_only: FileOnly = False,
    config: ConfigFile = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of such files instead.")
    ] = False,
    kind: Annotated[
        FileKind, typer.Option("--kind", help="The kind of file that --schema describes.")
    ] = FileKind.PIPELINE,
) -> None:
    """Check files of every kind without running them.

    Exits with 2 if any of them has a fault.
    """
    if schema:
        typer.echo(json.dumps(_schema_of(kind), indent=2))
        return
    from onceflow.pipeline.file.loader import load_pipeline

    if not files:
        raise ConfigError("no file to check", expected="`onceflow validate FILE...`")
    settings = settings_of(config=config)
    is_analysed = not file_only and has_spark()
    load = partial(load_allowed, settings=settings) if is_analysed else load_pipeline
    found = [_loaded(path, load) for path in files]
    # Spark takes seconds to start: not for files that are refused anyway.
    needs_spark = is_analysed and not all(isinstance(each, FileVerdict) for each in found)
    with analysis_session("validate", settings) if needs_spark else nullcontext() as spark:
        verdicts = [
            each if isinstance(each, FileVerdict) else _judged(each, settings, spark)
            for each in found
        ]
        _print(verdicts, output)
    if any(verdict.faults for verdict in verdicts):
        raise typer.Exit(ConfigError.exit_code)


def _schema_of(kind: FileKind) -> Mapping[str, Any]:
    from onceflow.pipeline.file.model import Pipeline
    from onceflow.pipeline.file.schema import json_schema

    commands = commands_of(kind)
    return json_schema(commands.model() if commands else Pipeline, kind)


def _loaded(path: Path, load: Callable[[Path], PipelineFile]) -> PipelineFile | FileVerdict:
    try:
        if (commands := commands_for(path)) is not None:
            return FileVerdict(path, is_analysed=True, promise=commands.guarantee_of(path))
        return load(path)
    except ConfigError as error:
        unreadable = Fault(str(error), rule=Rule.UNREADABLE_FILE)
        return FileVerdict(path, error.faults or (unreadable,))


def _judged(file: PipelineFile, settings: Settings, spark: SparkSession | None) -> FileVerdict:
    try:
        if spark is not None:
            _require_client(file, settings)
        found = analysed(file, settings, spark)
    except ConfigError as error:
        unplaced = Fault(str(error), rule=Rule.INVALID_QUERY)
        return FileVerdict(file.path, error.faults or (unplaced,), is_analysed=True)
    if found.analysis is None:
        return FileVerdict(file.path)
    from onceflow.pipeline.analysis.laws import law_faults, unchecked_laws

    unchecked = tuple(unchecked_laws(file))
    return FileVerdict(
        file.path,
        faults=() if unchecked else tuple(law_faults(file)),
        warnings=(*found.warnings(), *unchecked),
        waived=found.waived(),
        is_analysed=True,
        readers=found.readers(),
    )


def _require_client(file: PipelineFile, settings: Settings) -> None:
    """Go on only if every source can be read with the client settings; needs no secret.

    Raises:
        ConfigError: names those that cannot be used.
    """
    from onceflow.contracts.connector import Connection

    connection = Connection(settings.bootstrap_servers, settings.client)
    for source in file.pipeline.sources.values():
        source.block.java_client(connection)


def _print(verdicts: Sequence[FileVerdict], output: VerdictFormat) -> None:
    if output is VerdictFormat.JSON:
        print_json([verdict.to_json() for verdict in verdicts])
    elif output is VerdictFormat.SARIF:
        print_json(sarif_log([finding for verdict in verdicts for finding in verdict.findings()]))
    else:
        for verdict in verdicts:
            show(verdict)


def show(verdict: FileVerdict) -> None:
    """Print the verdict on one file for people."""
    from onceflow.cli.shared.terminal import say

    if verdict.faults:
        count = len(verdict.faults)
        word = (f"{count} fault{'s' if count > 1 else ''}", "red")
    elif verdict.guarantee and verdict.guarantee.level == "refused":
        word = ("valid, but on this machine it would not start", "yellow")
    elif verdict.is_analysed:
        word = (f"valid: {verdict.guarantee}", "green")
    else:
        reason = "" if has_spark() else ": PySpark is not installed (extra `service`)"
        word = (f"valid as far as the file goes; its query was not analysed{reason}", "")
    say(f"{verdict.path}: ", word)
    if verdict.guarantee and verdict.guarantee.reasons:
        for reader in verdict.readers:
            why = "".join(f": {reason}" for reason in reader.guarantee.reasons)
            typer.echo(f"  - {reader.reading}: {reader.guarantee}{why}")
    for condition in verdict.promise.reasons if verdict.promise else ():
        typer.echo(f"  - {condition}")
    for fault in verdict.faults:
        typer.echo(f"  - {fault}")
    for warning in verdict.warnings:
        say("  - ", ("warning", "yellow"), f": {warning}")
    for waived in verdict.waived:
        say("  - ", ("waived", "yellow"), f": {waived}")
