"""Makes the target that a delivery file names."""

from __future__ import annotations

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection, Connector
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import TargetSpec
from onceflow.delivery.model import Delivery


def make_target(
    delivery: Delivery, connector: Connector, connection: Connection, clock: Clock
) -> Target:
    """Make the target of a delivery. Connects to nothing before its first use.

    Raises:
        ConfigError: what it needs is not installed.
    """
    del connector, connection, clock
    spec = TargetSpec(delivery.name, delivery.source.columns, delivery.folder)
    return delivery.to.block.target(spec)
