"""The log source as a package of a user: found by its entry point."""

from __future__ import annotations

from pathlib import Path

KIND = "log"


def install(folder: Path) -> None:
    """Make `folder` hold the metadata of a distribution that offers the log source."""
    metadata = folder / "log_source-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: log-source\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        f"[onceflow.sources]\n{KIND} = tests.support.fakes.log_source:LogBlock\n"
    )
