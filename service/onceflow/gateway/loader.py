"""From a file to a `Gateway`, or to every fault in it at once, each with its line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onceflow.errors import ConfigError, Fault
from onceflow.gateway.model import Gateway
from onceflow.pipeline.file.loader import validation_faults
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.text.files import MAX_PIPELINE_BYTES, read_text, require_inside
from onceflow.pipeline.text.keys import KeyIndex
from onceflow.pipeline.text.yaml_text import parse_yaml


def load_gateway(path: Path) -> Gateway:
    """Read and check a gateway file, without Kafka.

    Raises:
        ConfigError: lists every fault.
    """
    require_inside(path, path.parent)
    document = parse_yaml(read_text(path, MAX_PIPELINE_BYTES))
    faults = [replace(fault, rule=Rule.MALFORMED_YAML) for fault in document.faults]
    try:
        gateway = Gateway.model_validate(document.data)
    except ValidationError as error:
        faults += validation_faults(error, document, KeyIndex.of_model(Gateway))
        raise _refused(path, faults) from None
    if faults:
        raise _refused(path, faults)
    return gateway


def json_schema() -> dict[str, Any]:
    """The schema that editors complete and check gateway files with."""
    from onceflow.pipeline.file.schema import without_titles  # noqa: PLC0415  only for --schema

    schema = Gateway.model_json_schema(by_alias=True)
    return without_titles(schema) | {"title": "Onceflow gateway"}


def _refused(path: Path, faults: list[Fault]) -> ConfigError:
    in_order = sorted(faults, key=lambda fault: (fault.line or 0, fault.where))
    return ConfigError("gateway file refused", subject=str(path), faults=tuple(in_order))
