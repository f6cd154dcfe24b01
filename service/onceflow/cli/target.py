"""The pipeline that a command looks at, by its name or by its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onceflow.cli.ledger import opened
from onceflow.cli.options import settings_of

if TYPE_CHECKING:
    from onceflow.ops.survey import Survey

FILE_SUFFIXES = (".yaml", ".yml")
"""No pipeline's name ends so: it has no dot."""

PipelineTarget = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="Name of the pipeline, or its file.")
]


@dataclass(frozen=True)
class Target:
    """What is known of it before anything is asked.

    Args:
        name: of the pipeline.
        event_time_sources: sources with an event time; None if only its name is known.
        waivers: of its file, as text.
    """

    name: str
    event_time_sources: frozenset[str] | None = None
    waivers: tuple[str, ...] = ()


def target_of(text: str) -> Target:
    """What a user means.

    Raises:
        ConfigError: the file is refused.
    """
    if not text.endswith(FILE_SUFFIXES):
        return Target(text)
    from onceflow.pipeline.loader import load_pipeline

    pipeline = load_pipeline(Path(text)).pipeline
    timed = frozenset(name for name, source in pipeline.sources.items() if source.event_time)
    return Target(pipeline.name, timed, tuple(map(str, pipeline.waivers)))


@contextmanager
def opened_survey(
    target: Target, bootstrap_servers: str | None, config: Path | None
) -> Iterator[Survey]:
    """Everything to look at a pipeline with.

    Raises:
        ConfigError: as `opened`.
    """
    from onceflow.cli.run import CONNECTOR
    from onceflow.clock import SystemClock
    from onceflow.contracts.connector import find_connector
    from onceflow.ops.survey import Survey

    connection = settings_of(bootstrap_servers, config).connection()
    with opened(target.name, bootstrap_servers, config) as (ledger, broker):
        board = find_connector(CONNECTOR).bulletin_board(target.name, connection)
        try:
            yield Survey(
                target.name, ledger, broker, board, SystemClock(), target.event_time_sources
            )
        finally:
            board.close()
