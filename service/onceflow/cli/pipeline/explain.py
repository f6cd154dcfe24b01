"""`onceflow explain`: a pipeline or a delivery, with the promise on every way."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.kinds.commands import commands_for
from onceflow.cli.pipeline.analysis import Analysed, analysed, analysis_session, has_spark
from onceflow.cli.shared.options import ConfigFile, FileOnly, load_allowed, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json
from onceflow.cli.shared.picture import WIDTH, arrow, box

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from onceflow.pipeline.analysis.explain import Explanation
    from onceflow.settings import Settings


def explain(
    file: Annotated[Path, typer.Argument(help="The file, of any kind.")],
    *,
    output: OutputOption = ResultFormat.TEXT,
    file_only: FileOnly = False,
    config: ConfigFile = None,
    keys: Annotated[
        int | None, typer.Option(help="Forecast the size of this many rows of state.", min=1)
    ] = None,
) -> None:
    """Draw a file of any kind from source to sink, with its guarantees."""
    from onceflow.pipeline.file.loader import load_pipeline

    if (commands := commands_for(file)) is not None:
        commands.explain(file, output)
        return

    settings = settings_of(config=config)
    is_analysed = has_spark() and not file_only
    loaded = load_allowed(file, settings) if is_analysed else load_pipeline(file)
    with analysis_session("explain", settings) if is_analysed else nullcontext() as spark:
        found = analysed(loaded, settings, spark)
        measured = _measured(found, settings, spark) if spark else ()
    explanation = _explained(found, keys, measured)
    if output is ResultFormat.JSON:
        print_json({**asdict(explanation), "analysed": found.analysis is not None})
        return
    from onceflow.cli.shared.terminal import Terminal

    console = Terminal(width=WIDTH, highlight=False)
    for part in _picture(explanation):
        # A long path stays whole, so that it can be copied.
        console.print(part, soft_wrap=isinstance(part, str))


def _measured(found: Analysed, settings: Settings, spark: SparkSession) -> Sequence[str]:
    """Measure a row in one partition of each operator; nothing if it cannot be read."""
    from onceflow.errors import OnceflowError
    from onceflow.pipeline.plan.plan import jvm_of
    from onceflow.runtime.spark.session import SessionSettings
    from onceflow.runtime.state.reader import opened_state

    session = SessionSettings(**settings.spark.model_dump())
    location = found.file.pipeline.checkpoint_location
    try:
        with opened_state(location, session, jvm_of(spark)) as reader:
            return [
                f"state of {operator.name} as of batch {batch}: {size.rows:,} rows in one of"
                f" {operator.partitions} partitions, {size.bytes / size.rows:.0f} bytes each"
                for operator in reader.layout.operators()
                for batch in [reader.layout.require_batch(operator, None)]
                for size in islice(reader.sizes(operator, batch), 1)
                if size.rows
            ]
    except OnceflowError:
        return []


def _explained(found: Analysed, keys: int | None, measured: Sequence[str]) -> Explanation:
    from onceflow.pipeline.analysis.explain import explain
    from onceflow.pipeline.analysis.ordering import order_text

    analysis, readers = found.analysis, found.readers()
    if analysis is None:
        return explain(found.file.pipeline, readers)
    reads = [f"{view}: {', '.join(c.names)}" for view, c in analysis.columns.items()]
    steps = found.file.pipeline.process
    result = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in analysis.output)
    facts = (
        f"reads {'; '.join(reads)}",
        *(
            f"step {name}: {steps[name].kind} for each {', '.join(runner.keys)}, {runner.when}"
            for name, runner in analysis.processors.items()
            if name in steps
        ),
        f"gives {result}",
        "keeps state between batches" if analysis.is_stateful else "keeps no state",
        *(forecast.text(keys) for forecast in analysis.state),
        *measured,
        *(f"warning: {warning}" for warning in analysis.warnings),
        *(f"waived: {waiver}" for waiver in analysis.waived),
    )
    return explain(found.file.pipeline, readers, facts, order_text(analysis.order))


def _picture(explanation: Explanation) -> Iterator[RenderableType]:
    from rich.columns import Columns
    from rich.table import Table

    yield Columns([box(node) for node in explanation.sources])
    yield from arrow(explanation.reading)
    yield box(explanation.query)
    yield from arrow(explanation.writing)
    yield box(explanation.sink)
    yield f"\nWhat a reader of the output gets (delivery: {explanation.delivery})"
    readers = Table(box=None)
    for heading in ("reading", "gets", "why not more, and how to fix it"):
        readers.add_column(heading)
    for reader in explanation.readers:
        guarantee = reader.guarantee
        level = guarantee.level.value.replace("_", " ")
        readers.add_row(reader.reading, level, "\n".join(map(str, guarantee.reasons)))
    yield readers
    names = explanation.names
    yield f"\nledger      {names.ledger}\nposition    group {names.group}"
    yield "writes as   " + "\n            ".join(names.transactional_ids)
    yield f"checkpoint  {explanation.checkpoint}"
