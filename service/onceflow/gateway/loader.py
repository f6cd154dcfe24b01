"""From a file to a `Gateway`, or to every fault in it at once, each with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onceflow.gateway.model import Gateway
from onceflow.pipeline.file.loader import load_file


def load_gateway(path: Path) -> Gateway:
    """Read and check a gateway file, without Kafka.

    Raises:
        ConfigError: lists every fault.
    """
    return load_file(path, Gateway)


def json_schema() -> dict[str, Any]:
    """The schema that editors complete and check gateway files with."""
    from onceflow.pipeline.file.schema import without_titles  # noqa: PLC0415  only for --schema

    schema = Gateway.model_json_schema(by_alias=True)
    return without_titles(schema) | {"title": "Onceflow gateway"}
