"""The pipeline that a command looks at, by its name or by its file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.shared.options import kafka
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.cli.kinds.commands import Commands
    from onceflow.observe.survey import Survey
    from onceflow.settings import Settings

FILE_SUFFIXES = (".yaml", ".yml")
"""No pipeline's name ends so: it has no dot."""

PipelineTarget = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="Name of the pipeline, or its file.")
]


LookTarget = Annotated[
    str,
    typer.Argument(metavar="PIPELINE", help="Name of the pipeline, or a file of any kind."),
]


def file_of(text: str) -> Path:
    """The pipeline's file, where its name is not enough.

    Raises:
        ConfigError: only the name was given.
    """
    if not text.endswith(FILE_SUFFIXES):
        raise ConfigError(
            "this needs the pipeline file, not its name",
            subject=text,
            expected="a path that ends in .yaml or .yml",
        )
    return Path(text)


def survey_of(text: str, settings: Settings) -> AbstractContextManager[Survey]:
    """Open a survey of the pipeline with this name or file.

    Raises:
        ConfigError: the file is refused, or no pipeline can have this name.
        DeadlineError: no broker answers.
    """
    from onceflow.observe.survey import opened_survey
    from onceflow.pipeline.file.loader import load_pipeline
    from onceflow.protocol.identity import check_pipeline_name

    name, timed = text, None
    if text.endswith(FILE_SUFFIXES):
        pipeline = load_pipeline(Path(text)).pipeline
        name, timed = pipeline.name, pipeline.event_time_sources
    connection = settings.connection()
    return opened_survey(check_pipeline_name(name), kafka(), connection, SystemClock(), timed)


def commands_for_target(text: str) -> Commands | None:
    """The commands of the kind of file that this is; None for a pipeline, or its name."""
    from onceflow.cli.kinds.commands import commands_for

    return commands_for(Path(text)) if text.endswith(FILE_SUFFIXES) else None
