"""Names a request forever, so that a receiver can tell that it has had it before. Pure.

A key is the same whenever the same record is read again: after a restart, a rebalance, and a replay
of the pipeline's batch. It is another for each other record, also of another delivery, because
receivers often remember the keys of all their addresses together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from onceflow.contracts.record import Record

MAX_CHARACTERS = 255
"""What receivers take. Only a topic with a very long name needs more."""


def record_key(delivery: str, record: Record) -> str:
    """Name a record.

    A record of a pipeline is named by its place in the pipeline's history. The generation is not
    part of it, because sequences go on in the next one. The plan tag is: a pipeline that promises
    less may write other content under the same sequence, which is another record.

    A foreign record is named by its place in the topic, and by its timestamp: a topic that is
    created again begins at offset 0 again.

    Raises:
        CorruptionError: the record has a header that cannot be read.
    """
    header = record.header
    if header is None:
        key = f"{delivery}/{record.topic}/{record.partition}/{record.offset}/{record.timestamp_ms}"
    else:
        pipeline = f"{header.pipeline_tag:08x}/{header.lineage}"
        batch = f"{record.partition}/{header.plan_tag:08x}"
        key = f"{delivery}/{pipeline}/{batch}/{header.sequence}"
    return key if len(key) <= MAX_CHARACTERS else _digest(delivery, [key])


def request_key(delivery: str, records: Sequence[Record]) -> str:
    """Name a request: as its record, or by all of them, so that the same key has the same body.

    Raises:
        CorruptionError: a record has a header that cannot be read.
    """
    keys = [record_key(delivery, record) for record in records]
    return keys[0] if len(keys) == 1 else _digest(delivery, keys)


def _digest(delivery: str, keys: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(keys).encode())
    return f"{delivery}/{digest.hexdigest()}"
