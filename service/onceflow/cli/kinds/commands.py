"""Finds what the commands do with files of a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from onceflow.pipeline.file.kinds import FileKind

if TYPE_CHECKING:
    from pydantic import BaseModel

    from onceflow.cli.shared.output import ResultFormat
    from onceflow.clock import Deadline
    from onceflow.contracts.connector import Topics
    from onceflow.protocol.guarantee import Guarantee
    from onceflow.repair.dead_letters import Resent
    from onceflow.settings import Settings


class Commands(Protocol):
    """The commands of a kind.

    All of them raise a ConfigError that lists every fault of the file.
    """

    def run(self, file: Path, settings: Settings, *, is_until_caught_up: bool) -> None:
        """Run it until it is drained, has caught up, or fails."""

    def serve(
        self, files: Sequence[Path], overrides: Mapping[str, str | None], config: Path | None
    ) -> None:
        """Run all of them in this process, and start again what fails."""

    def explain(self, file: Path, output: ResultFormat) -> None:
        """Draw it, from the file alone."""

    def guarantee_of(self, file: Path) -> Guarantee:
        """The promise of the file."""

    def status(self, file: Path, settings: Settings, output: ResultFormat) -> None:
        """Show where it stands, seen from outside."""

    def why_stuck(self, file: Path, settings: Settings, output: ResultFormat) -> None:
        """Tell what holds it up. Exits with 1 if something does."""

    def topics(self, file: Path) -> Topics:
        """The topics that it reads and writes, for the rights that it needs."""

    def letter_topic(self, file: Path) -> str:
        """The topic of its dead letters. Raises a ConfigError if there is none."""

    def replay(self, file: Path, settings: Settings, deadline: Deadline) -> Resent:
        """Send its dead letters again, each once. Raises a ConfigError if that is impossible."""

    def model(self) -> type[BaseModel]:
        """The model of its file."""


def commands_of(kind: FileKind) -> Commands | None:
    """The commands of a kind; None for pipelines, which the commands know themselves."""
    match kind:
        case FileKind.DELIVERY:
            from onceflow.cli.kinds.delivery import DeliveryCommands

            return DeliveryCommands()
        case FileKind.ENRICHMENT:
            from onceflow.cli.kinds.enrichment import EnrichmentCommands

            return EnrichmentCommands()
        case FileKind.GATEWAY:
            from onceflow.cli.kinds import gateway

            return gateway
        case FileKind.PIPELINE:
            return None


def commands_for(file: Path) -> Commands | None:
    """The commands of the kind that the file says; None for a pipeline."""
    from onceflow.pipeline.file.loader import kind_of

    return commands_of(kind_of(file))
