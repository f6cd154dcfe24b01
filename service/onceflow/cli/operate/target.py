"""The pipeline that a command looks at, by its name or by its file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.shared.options import kafka
from onceflow.clock import SystemClock
from onceflow.errors import ConfigError

if TYPE_CHECKING:
    from onceflow.observe.survey import Survey
    from onceflow.settings import Settings

FILE_SUFFIXES = (".yaml", ".yml")
"""No pipeline's name ends so: it has no dot."""

PipelineTarget = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="Name of the pipeline, or its file.")
]


@dataclass(frozen=True)
class Target:
    """A pipeline; `event_time_sources` is None if only its name is known."""

    name: str
    event_time_sources: frozenset[str] | None = None


def target_of(text: str) -> Target:
    """The pipeline that a user means.

    Raises:
        ConfigError: the file is refused.
    """
    if not text.endswith(FILE_SUFFIXES):
        return Target(text)
    from onceflow.pipeline.file.loader import load_pipeline

    pipeline = load_pipeline(Path(text)).pipeline
    timed = frozenset(name for name, source in pipeline.sources.items() if source.event_time)
    return Target(pipeline.name, timed)


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


def survey_of(target: Target, settings: Settings) -> AbstractContextManager[Survey]:
    """Open what a pipeline is looked at with.

    Raises:
        ConfigError: no pipeline can have this name.
        DeadlineError: no broker answers.
    """
    from onceflow.observe.survey import opened_survey
    from onceflow.protocol.identity import check_pipeline_name

    return opened_survey(
        check_pipeline_name(target.name),
        kafka(),
        settings.connection(),
        SystemClock(),
        target.event_time_sources,
    )
