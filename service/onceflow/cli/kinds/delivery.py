"""Commands for deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceflow.cli.kinds.carriages import CarriageCommands
from onceflow.pipeline.file.kinds import FileKind

if TYPE_CHECKING:
    from onceflow.clock import Deadline
    from onceflow.delivery.metrics import DeliveryMetrics
    from onceflow.delivery.model import Delivery
    from onceflow.repair.dead_letters import Resent
    from onceflow.settings import Settings


class DeliveryCommands(CarriageCommands["Delivery"]):
    """Implements `Commands`."""

    kind = FileKind.DELIVERY

    def load(self, file: Path, *, may_run_code: bool = True) -> Delivery:
        """Read and check a file."""
        from onceflow.delivery.loader import load_delivery

        return load_delivery(file).delivery

    def metrics(self) -> type[DeliveryMetrics]:
        """The metrics of a process that serves deliveries."""
        from onceflow.delivery.metrics import DeliveryMetrics

        return DeliveryMetrics

    def replay(self, file: Path, settings: Settings, deadline: Deadline) -> Resent:
        """Send its dead letters to the target, each once."""
        from random import Random
        from threading import Event

        from onceflow.cli.shared.options import kafka
        from onceflow.delivery.letters import deliver_letters
        from onceflow.delivery.run import Around
        from onceflow.serve.ending import drain_on_signals

        stop, clock = Event(), deadline.clock
        random = Random(clock.unix_ms())  # noqa: S311  for delays
        around = Around(
            kafka(), settings.connection(), clock, lambda event, /, **facts: None, stop, random
        )
        with drain_on_signals(stop.set):
            return deliver_letters(self.load(file), around, deadline)

    def model(self) -> type[Delivery]:
        """The model of its file."""
        from onceflow.delivery.model import delivery_model

        return delivery_model()

    def facts(self, carriage: Delivery) -> Mapping[str, Any]:
        """Nothing more."""
        return {}

    def steps(self, carriage: Delivery) -> Sequence[str]:
        """Nothing more."""
        return ()

    def passage(self, carriage: Delivery) -> tuple[str, str]:
        """Say how records get to the target, and what keeps the position."""
        from onceflow.contracts.target_block import SenderBlock
        from onceflow.protocol.identity import DELIVERIES_TOPIC

        if isinstance(carriage.to.block, SenderBlock):
            return "the position moves after the answers", f"the topic {DELIVERIES_TOPIC} keeps"
        return "records and position in one step", "keeps"
