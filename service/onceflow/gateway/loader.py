"""From a file to a `Gateway`, or to every fault in it at once, each with its line."""

from __future__ import annotations

from pathlib import Path

from onceflow.gateway.model import Gateway
from onceflow.pipeline.file.loader import load_file


def load_gateway(path: Path) -> Gateway:
    """Read and check a gateway file, without Kafka.

    Raises:
        ConfigError: lists every fault.
    """
    return load_file(path, Gateway)
