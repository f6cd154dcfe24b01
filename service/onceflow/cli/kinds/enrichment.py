"""Commands for enrichments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceflow.cli.kinds.carriages import CarriageCommands
from onceflow.errors import ConfigError
from onceflow.pipeline.file.kinds import FileKind

if TYPE_CHECKING:
    from onceflow.clock import Deadline
    from onceflow.delivery.metrics import DeliveryMetrics
    from onceflow.enrichment.model import Enrichment
    from onceflow.repair.dead_letters import Resent
    from onceflow.settings import Settings


class EnrichmentCommands(CarriageCommands["Enrichment"]):
    """Implements `Commands`."""

    kind = FileKind.ENRICHMENT

    def load(self, file: Path, *, may_run_code: bool = True) -> Enrichment:
        """Read and check a file."""
        from onceflow.enrichment.loader import load_enrichment

        return load_enrichment(file, may_run_code=may_run_code)

    def metrics(self) -> type[DeliveryMetrics]:
        """The metrics of a process that serves enrichments."""
        from onceflow.enrichment.metrics import EnrichmentMetrics

        return EnrichmentMetrics

    def replay(self, file: Path, settings: Settings, deadline: Deadline) -> Resent:
        """Refuse: its output keeps the sequences of its input."""
        raise ConfigError(
            "the dead letters of an enrichment cannot be sent again",
            subject=str(file),
            found="its output keeps the sequences of its input: readers discard what they passed",
            then="nothing was sent. Correct what rejects them, and start an enrichment of another"
            " name with another output topic: it asks about all that the topic still has",
        )

    def model(self) -> type[Enrichment]:
        """The model of its file."""
        from onceflow.enrichment.model import Enrichment

        return Enrichment

    def facts(self, carriage: Enrichment) -> Mapping[str, Any]:
        """Say who is asked, and what is recorded."""
        answer = carriage.answer
        return {
            "asks": carriage.ask.block.describe(),
            "answer": {answer.column: answer.columns.columns_ddl},
            "on_error": carriage.on_error,
        }

    def steps(self, carriage: Enrichment) -> Sequence[str]:
        """Say how it asks."""
        ask, answer = carriage.ask, carriage.answer
        order = {"none": "in any order", "key": "in order per key", "partition": "in order"}
        most = f", {ask.questions_per_second:,} a second" if ask.questions_per_second else ""
        how = f"{ask.concurrency} at once{most}, {order[ask.order]}"
        steps = [f"asks {ask.block.describe()}: {how}"]
        if ask.cache is not None:
            age_s = ask.cache.lifetime_ms / 1000
            steps.append(f"uses answers again for {age_s:,g} s, {ask.cache.at_most:,} at most")
        steps.append(f"records {answer.column}: {answer.columns.columns_ddl}")
        done = {
            "reject": "rejects a record without an answer",
            "write_null": "writes null where there is no answer",
            "retry": "asks until there is an answer",
        }
        return [*steps, done[carriage.on_error]]

    def passage(self, carriage: Enrichment) -> tuple[str, str]:
        """Say how records get to the topic, and what keeps the position."""
        from onceflow.protocol.identity import DELIVERIES_TOPIC

        step = "records, answers and position in one transaction"
        return step, f"the topic {DELIVERIES_TOPIC} keeps"
