"""A pipeline as it was left on another broker: its topics and its checkpoint, kept as one file.

`tests/integration/recorded/*.json` were made by commit 688d4b9, the last one that wrote the rows of
a batch by (partition, key, value); `record` of this file in commit 1c9c9b3 shows how.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluent_kafka import TopicCollection

from tests.support.outside.topics import administration, create_topic, ordered_producer

CASES = ("exactly_once", "at_least_once")
"""Delivery modes. The driver died in batch 1: of the first between the two commits, of the second
before both but with the records written."""
PARTITIONS = 2
NEVER_DELETED = {"retention.ms": "-1"}


def name_of(delivery: str) -> str:
    return f"upgrade-{delivery.replace('_', '-')}"


def topics_of(name: str) -> tuple[str, str, str]:
    """Input, output, ledger."""
    return f"{name}-in", f"{name}-out", f"onceflow.ledger.{name}"


def restore(bootstrap_servers: str, recording: Mapping[str, Any], folder: Path) -> Path:
    """Put it on another broker, under the ids that topics have there.

    Returns:
        The pipeline file.
    """
    ids = recording["topic_ids"]
    (source, output), ledger = ids, recording["ledger"]
    for topic in (source, output):
        create_topic(bootstrap_servers, topic, PARTITIONS, NEVER_DELETED)
    ledger_topic = topics_of(output.removesuffix("-out"))[2]
    create_topic(bootstrap_servers, ledger_topic, 2, {"cleanup.policy": "compact"})
    new_ids = {ids[topic]: _topic_id(bootstrap_servers, topic) for topic in ids}

    def moved(text: str) -> str:
        for old, new in new_ids.items():
            text = text.replace(old, new)
        return text

    producer = ordered_producer(bootstrap_servers)
    for number, step in enumerate(recording["steps"]):
        producer.produce(source, json.dumps(step), partition=number % PARTITIONS)
    for topic, records in ((output, recording["output"]), (ledger_topic, ledger)):
        for partition, *parts in records:
            key, value, header = (part and base64.b64decode(part) for part in parts)
            if topic == ledger_topic and value:
                value = _by_this_machine(moved(value.decode())).encode()
            headers: dict[str, str | bytes | None] = {"onceflow": header} if header else {}
            producer.produce(topic, value, key, partition, headers=headers)
    assert producer.flush(30) == 0
    for name, text in recording["checkpoint"].items():
        path = folder / "checkpoint" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(moved(text))
    file = folder / "pipeline.yaml"
    file.write_text(recording["pipeline"])
    return file


def _by_this_machine(entry: str) -> str:
    """Put in the versions of Spark and Python installed here, which are not under test."""
    fields = json.loads(entry)
    if "plan_parts" in fields:
        here = {"spark": version("pyspark"), "python": ".".join(map(str, sys.version_info[:2]))}
        fields["plan_parts"] |= here
        fields["plan"] = hashlib.sha256(_canonical(fields["plan_parts"]).encode()).hexdigest()
    return _canonical(fields)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _topic_id(bootstrap_servers: str, topic: str) -> str:
    with administration(bootstrap_servers) as admin:
        asked = admin.describe_topics(TopicCollection([topic]))[topic]
        return str(asked.result(30).topic_id)
