"""A pipeline as it was left on another broker: its topics and its checkpoint, kept as one file.

`tests/integration/recorded/*.json` were made by commit 688d4b9, the last one that wrote the rows of
a batch by (partition, key, value). To make them again, check it out beside this repository and run

    PYTHONPATH=OLD:OLD/service:OLD/connectors python tests/support/recording.py ADDRESS FOLDER

with the address of an empty broker and a folder for the files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import TopicCollection

from onceflow.crashpoints import CrashPoint
from tests.support.here import run_until_it_fails
from tests.support.history import read_topic
from tests.support.topics import administration, create_topic, ordered_producer

CASES = {
    "exactly_once": CrashPoint.AFTER_COMMIT,
    "at_least_once": CrashPoint.BEFORE_COMMIT,
}
"""Delivery mode -> where the driver died in batch 1: between the two commits, or before both but
with the records written."""
PARTITIONS = 2
RECORDS = 60
NEVER_DELETED = {"retention.ms": "-1"}


def name_of(delivery: str) -> str:
    return f"upgrade-{delivery.replace('_', '-')}"


def topics_of(name: str) -> tuple[str, str, str]:
    """Input, output, ledger."""
    return f"{name}-in", f"{name}-out", f"onceflow.ledger.{name}"


def record(bootstrap_servers: str, delivery: str, folder: Path) -> Mapping[str, Any]:
    """Run a pipeline until its driver dies in batch 1, and keep what is left."""
    name = name_of(delivery)
    source, output, ledger = topics_of(name)
    for topic in (source, output):
        create_topic(bootstrap_servers, topic, PARTITIONS)
    dice, producer = Random(4), ordered_producer(bootstrap_servers)
    steps = [
        {"id": f"order-{dice.randrange(3)}", "step": f"{dice.randrange(1000):03}-{number}"}
        for number in range(RECORDS)
    ]
    for number, step in enumerate(steps):
        producer.produce(source, json.dumps(step), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    file = folder / "pipeline.yaml"
    file.write_text(
        f"""\
apiVersion: onceflow/v1
name: {name}
delivery: {delivery}
sources:
  orders:
    kafka: {{topics: [{source}], max_records_per_batch: 20}}
    schema: "id STRING, step STRING"
query: SELECT id, step FROM orders
sink:
  kafka: {{topic: {output}, partitions: {PARTITIONS}, key: id}}
checkpoint: checkpoint
"""
    )
    # The first commit is that of the registration, the second that of batch 0.
    run_until_it_fails(file, bootstrap_servers, CASES[delivery], 3)
    return {
        "pipeline": file.read_text(),
        "steps": steps,
        "topic_ids": {topic: _topic_id(bootstrap_servers, topic) for topic in (source, output)},
        "output": _kept(bootstrap_servers, output),
        "ledger": _kept(bootstrap_servers, ledger),
        "checkpoint": {
            str(path.relative_to(folder / "checkpoint")): path.read_text()
            for path in sorted((folder / "checkpoint").rglob("*"))
            if path.is_file() and path.suffix != ".crc"
        },
    }


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
    """As though the Spark and the Python that are here had been there: this is no test of them."""
    fields = json.loads(entry)
    if "plan_parts" in fields:
        here = {"spark": version("pyspark"), "python": ".".join(map(str, sys.version_info[:2]))}
        fields["plan_parts"] |= here
        fields["plan"] = hashlib.sha256(_canonical(fields["plan_parts"]).encode()).hexdigest()
    return _canonical(fields)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _kept(bootstrap_servers: str, topic: str) -> Sequence[Sequence[int | str | None]]:
    """Partition, key, value and header of each record."""
    return [
        [w.partition, *map(_as_text, (w.key, w.value, w.header))]
        for w in read_topic(bootstrap_servers, topic)
    ]


def _as_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _topic_id(bootstrap_servers: str, topic: str) -> str:
    with administration(bootstrap_servers) as admin:
        asked = admin.describe_topics(TopicCollection([topic]))[topic]
        return str(asked.result(30).topic_id)


def main() -> None:
    """Record every case."""
    address, target = sys.argv[1:]
    for delivery in CASES:
        with tempfile.TemporaryDirectory() as folder:
            kept = record(address, delivery, Path(folder))
        text = json.dumps(kept, indent=1, sort_keys=False)
        (Path(target) / f"{name_of(delivery)}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
