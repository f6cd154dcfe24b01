"""Offsets of a consumer group, by kafka-python.

librdkafka 2.16 crashes the process when it asks for them while the group's coordinator is not ready
(librdkafka issue 5040).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.support.eventually import eventually


def group_offsets(bootstrap_servers: str, group: str) -> Mapping[tuple[str, int], int]:
    """(topic, partition) -> committed offset; empty if there is none."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers.split(","))

    def ask() -> Mapping[tuple[str, int], int] | None:
        try:
            found = admin.list_group_offsets([group])[group]
        except KafkaError:  # the coordinator is being elected
            return None
        return {(p.topic, p.partition): at.offset for p, at in found.items() if at.offset >= 0}

    try:
        offsets = eventually(ask, lambda answer: answer is not None)
        assert offsets is not None
        return offsets
    finally:
        admin.close()
