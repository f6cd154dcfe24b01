"""Lists the ACLs that a pipeline needs, and grants them.

`tests/system/test_rights.py` shows that each is needed, and no other. Kafka lets a principal that
may read or write a topic describe it too; and one that may write with a transactional id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection, PipelineTopics, Right, Task
from onceflow.protocol.identity import (
    bulletin_group,
    consumer_group,
    ledger_topic,
    resend_group,
    resend_transactional_id,
)
from onceflow_connectors.kafka.admin.administration import Administration, answered
from onceflow_connectors.kafka.client.librdkafka import READER_GROUP

CLUSTER = "kafka-cluster"
"""The only name of a resource of type cluster."""
EVERY = "*"
_Needed: TypeAlias = tuple[str, str, bool, str, str]
"""A right without its task."""
_READ = (("read", "its records"), ("describe_configs", "how long they are kept"))
_CONTROL = (("read", "parameters"), ("describe_configs", "that it is compacted"))
_WRITE = (("write", "output"), ("describe_configs", "how large a record may be"))
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


def rights_of(topics: PipelineTopics, task: Task, group: str) -> Sequence[Right]:
    """Implements `Connector.rights`."""
    return [Right(task, *needed) for needed in _needed(topics, group)[task]]


def _needed(topics: PipelineTopics, group: str) -> Mapping[Task, Sequence[_Needed]]:
    name = topics.pipeline
    ledger = ledger_topic(name)
    inputs = [*_inputs(topics)]
    outputs = (topics.output, *topics.beside)
    reader = ("group", READER_GROUP, False, "describe", "readers, which never join it")
    return {
        Task.RUN: [
            *(("topic", *of, *what) for of in inputs for what in _READ),
            *(("topic", of, False, *what) for of in outputs for what in _WRITE),
            *(("topic", of, False, *what) for of in topics.controls for what in _CONTROL),
            ("topic", topics.output, False, "read", "whether the ledger is as new"),
            ("topic", ledger, False, "read", "where it stands"),
            ("topic", ledger, False, "write", "an entry for each batch"),
            ("topic", ledger, False, "describe_configs", "that it is compacted"),
            ("transactional_id", f"onceflow.{name}.", True, "write", "transactions"),
            ("group", consumer_group(name), False, "read", "its position, for lag tools"),
            ("group", bulletin_group(name), False, "read", "its bulletins"),
            reader,
            ("cluster", CLUSTER, False, "describe_configs", "limits of transactions"),
        ],
        Task.CREATE: [
            ("topic", of, False, "create", "if it does not exist")
            for of in (ledger, *outputs, *topics.controls)
        ],
        Task.VERIFY: [("topic", topics.output, False, "read", "to see what was written")],
        Task.RESEND: [
            *(("topic", *of, "write", "the records again") for of in inputs),
            *(("topic", of, False, "read", "dead letters") for of in topics.beside),
            ("transactional_id", resend_transactional_id(name), False, "write", "transactions"),
            ("group", resend_group(name), False, "read", "how far it came"),
            reader,
        ],
        Task.SET: [
            ("topic", of, False, *what)
            for of in topics.controls
            for what in (("write", "changes"), _CONTROL[1])
        ],
        Task.CONSUME: [
            ("topic", topics.output, False, "read", "its records"),
            ("group", group, False, "read", "membership and position"),
        ],
    }


def _inputs(topics: PipelineTopics) -> Iterator[tuple[str, bool]]:
    """Yield names of topics, and prefixes of names."""
    yield from ((name, False) for name in topics.inputs)
    for pattern in topics.patterns:
        found = _SPECIAL.search(pattern)
        fixed = pattern[: found.start()] if found else pattern
        if found is not None and found[0] in "?*{":
            fixed = fixed[:-1]  # the character before may be absent
        has_choice = "|" in pattern
        yield (EVERY, False) if has_choice or not fixed else (fixed, True)


def grant(
    principal: str, rights: Sequence[Right], connection: Connection, deadline: Deadline
) -> None:
    """Implements `Connector.grant`."""
    # Tasks overlap, and the client refuses what is there twice.
    bindings = [*dict.fromkeys(_binding(principal, right) for right in rights)]

    def request(client: AdminClient, timeout_s: float) -> None:
        for future in client.create_acls(bindings, request_timeout=timeout_s).values():
            answered(future, timeout_s)

    administration = Administration(connection)
    try:
        administration.ask("cannot grant rights", principal, request, deadline)
    finally:
        administration.close()


def _binding(principal: str, right: Right) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
    # librdkafka knows the cluster as a broker.
    resource = "broker" if right.resource == "cluster" else right.resource
    return AclBinding(
        ResourceType[resource.upper()],
        right.name,
        pattern,
        principal,
        "*",
        AclOperation[right.operation.upper()],
        AclPermissionType.ALLOW,
    )
