"""A connector whose only gift is the log source; registered as a user's own would be."""

from __future__ import annotations

from pathlib import Path

from onceflow.contracts.connector import Connection
from onceflow.contracts.source import SourceSpec
from tests.support.log_source import LogFile, LogSource

NAME = "log"


class LogConnector:
    """The part of `contracts.connector.Connector` that the adapter needs."""

    def source(self, spec: SourceSpec, connection: Connection) -> LogSource:
        return LogSource(LogFile(Path(spec.options["path"])))


connector = LogConnector()


def install(folder: Path) -> None:
    """Make `folder` hold the metadata of a distribution that offers this connector."""
    metadata = folder / "log_connector-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: log-connector\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        f"[onceflow.connectors]\n{NAME} = {__name__}:connector\n"
    )
