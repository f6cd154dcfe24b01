"""Lists the ACLs that files of each kind need, and grants them.

`tests/system/test_rights.py` and `test_rights_of_kinds.py` show that each is needed, and no other.
Kafka lets a principal that may read or write a topic describe it too; and one that may write with a
transactional id.
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
from onceflow.contracts.connector import (
    CarriageTopics,
    Connection,
    GatewayTopics,
    PipelineTopics,
    Right,
    Task,
    Topics,
)
from onceflow.errors import ConfigError
from onceflow.protocol.identity import (
    DELIVERIES_TOPIC,
    bulletin_group,
    consumer_group,
    delivery_transactional_ids,
    gateway_group,
    gateway_keys_topic,
    gateway_owners_topic,
    gateway_transactional_ids,
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
_WRITE_LETTERS = (("write", "dead letters"), ("describe_configs", "how it was created"))
_KEEP = (
    ("read", "what is kept there"),
    ("write", "what is kept there"),
    ("describe_configs", "that nothing is lost there"),
)
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


_READER = ("group", READER_GROUP, False, "describe", "readers, which never join it")


def rights_of(topics: Topics, task: Task, group: str) -> Sequence[Right]:
    """Implements `Connector.rights`."""
    match topics:
        case PipelineTopics():
            needed = _of_pipeline(topics, group)
        case CarriageTopics():
            needed = _of_carriage(topics, group)
        case GatewayTopics():
            needed = _of_gateway(topics)
    if task not in needed:
        what = "no rights are needed for this here"
        raise ConfigError(what, subject=task, expected=", ".join(needed))
    return [Right(task, *right) for right in needed[task]]


def _of_carriage(topics: CarriageTopics, group: str) -> Mapping[Task, Sequence[_Needed]]:
    write: list[_Needed] = [("topic", of, False, *what) for of in topics.outputs for what in _WRITE]
    created = [*topics.outputs] if topics.is_created else []
    if topics.has_positions:
        ids = delivery_transactional_ids(topics.name)
        write += [("topic", DELIVERIES_TOPIC, False, *what) for what in _KEEP]
        write += [("transactional_id", ids, True, "write", "transactions"), _READER]
        created.append(DELIVERIES_TOPIC)
    read: list[_Needed] = [
        *(("topic", of, False, *what) for of in topics.inputs for what in _READ),
        *(("topic", of, False, *what) for of in topics.letters for what in _WRITE_LETTERS),
        ("group", topics.group, False, "read", "membership"),
    ]
    here = write if topics.has_positions and not topics.is_elsewhere else [_READER]
    found: dict[Task, Sequence[_Needed]] = {
        Task.RUN: [*read, *here],
        Task.CREATE: [
            *map(_creation, (*topics.letters, *([] if topics.is_elsewhere else created)))
        ],
    }
    if topics.letters and topics.is_resent:
        found[Task.RESEND] = [
            *(("topic", of, False, "read", "dead letters") for of in topics.letters),
            *(("topic", of, False, *what) for of in topics.letters for what in _WRITE_LETTERS),
            *here,
        ]
    if topics.is_elsewhere:
        found[Task.TARGET] = write
        found[Task.CREATE_TARGET] = [*map(_creation, created)]
    elif topics.outputs:
        found[Task.CONSUME] = [
            *(("topic", of, False, "read", "its records") for of in topics.outputs),
            ("group", group, False, "read", "membership and position"),
        ]
    return found


def _of_gateway(topics: GatewayTopics) -> Mapping[Task, Sequence[_Needed]]:
    keys, owners = gateway_keys_topic(topics.gateway), gateway_owners_topic(topics.gateway)
    ids = gateway_transactional_ids(topics.gateway)
    return {
        Task.RUN: [
            *(("topic", of, False, *what) for of in topics.topics for what in _WRITE),
            *(("topic", of, False, *what) for of in (keys, owners) for what in _KEEP),
            ("transactional_id", ids, True, "write", "transactions"),
            ("group", gateway_group(topics.gateway), False, "read", "membership"),
            _READER,
        ],
        Task.CREATE: [*map(_creation, (keys, owners))],
    }


def _creation(topic: str) -> _Needed:
    return ("topic", topic, False, "create", "if it does not exist")


def _of_pipeline(topics: PipelineTopics, group: str) -> Mapping[Task, Sequence[_Needed]]:
    name = topics.pipeline
    ledger = ledger_topic(name)
    inputs = [*_inputs(topics)]
    outputs = (topics.output, *topics.beside)
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
            _READER,
            ("cluster", CLUSTER, False, "describe_configs", "limits of transactions"),
        ],
        Task.CREATE: [_creation(of) for of in (ledger, *outputs, *topics.controls)],
        Task.VERIFY: [("topic", topics.output, False, "read", "to see what was written")],
        Task.RESEND: [
            *(("topic", *of, "write", "the records again") for of in inputs),
            *(("topic", of, False, "read", "dead letters") for of in topics.beside),
            ("transactional_id", resend_transactional_id(name), False, "write", "transactions"),
            ("group", resend_group(name), False, "read", "how far it came"),
            _READER,
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
