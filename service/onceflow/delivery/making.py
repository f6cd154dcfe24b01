"""Makes the target that a delivery file names."""

from __future__ import annotations

from onceflow.clock import Clock
from onceflow.contracts.connector import Connection, Connector
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import SenderBlock, TargetSpec
from onceflow.delivery.model import Delivery
from onceflow.delivery.sending import SendingTarget


def make_target(
    delivery: Delivery, connector: Connector, connection: Connection, clock: Clock
) -> Target:
    """Make the target of a delivery. Connects to nothing before its first use.

    Raises:
        ConfigError: what it needs is not installed.
    """
    block, source = delivery.to.block, delivery.source
    spec = TargetSpec(
        delivery.name, source.columns, delivery.folder, source.topics, connection, clock
    )
    if not isinstance(block, SenderBlock):
        return block.target(spec)
    return SendingTarget(
        block.sender(spec),
        connector.positions(delivery.name, connection),
        clock,
        block.key_lifetime_ms,
        delivery.retry.when_key_expires,
    )
