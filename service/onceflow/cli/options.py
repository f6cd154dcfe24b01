"""Options that several commands share, and the settings that follow from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onceflow.config import EffectiveValue
    from onceflow.pipeline.loader import PipelineFile
    from onceflow.settings import Settings

BootstrapServers = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", help="Kafka brokers: host:port, separated by commas."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file. Default: onceflow.yaml, if it exists."),
]
FileOnly = Annotated[
    bool,
    typer.Option("--file-only", help="Check the file without Spark: quick, but not the query."),
]


def settings_of(bootstrap_servers: str | None = None, config: Path | None = None) -> Settings:
    """The settings of this process under these options.

    Raises:
        ConfigError: lists every fault in file, environment and command line.
    """
    from onceflow.config import load_settings

    return load_settings(os.environ, {"bootstrap_servers": bootstrap_servers}, config)


def effective_of(bootstrap_servers: str | None, config: Path | None) -> Sequence[EffectiveValue]:
    """The same, each with its origin; errors as `settings_of`."""
    from onceflow.config import effective_values

    return effective_values(os.environ, {"bootstrap_servers": bootstrap_servers}, config)


def load_allowed(
    file: Path, bootstrap_servers: str | None = None, config: Path | None = None
) -> PipelineFile:
    """Load a pipeline file that is about to be analysed or run: either calls its Python.

    Raises:
        ConfigError: lists every fault in it or in the settings, or what the settings do not allow.
    """
    from onceflow.pipeline.loader import load_pipeline

    settings = settings_of(bootstrap_servers, config)
    return settings.require_allowed(load_pipeline(file), is_trusted=True)
