"""Options that several commands share, and the settings that follow from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onceflow.contracts.connector import Connector
    from onceflow.pipeline.file.loader import PipelineFile
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


def kafka() -> Connector:
    """The only connector so far."""
    from onceflow.contracts.connector import find_connector

    return find_connector("kafka")


def load_allowed(file: Path, settings: Settings, text: str | None = None) -> PipelineFile:
    """Load a pipeline file that is about to be analysed or run: either calls its Python.

    With a text, that is what the file is going to hold.

    Raises:
        ConfigError: lists every fault in it, or what the settings do not allow.
    """
    from onceflow.pipeline.file.loader import load_pipeline

    return settings.require_allowed(load_pipeline(file, text), is_trusted=True)
