"""Lists the ACLs that a pipeline needs, and grants them.

`tests/system/test_rights.py` shows that each is needed, and no other. Kafka lets a principal that
may read or write a topic describe it too; and one that may write with a transactional id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

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
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")

_Make = Callable[..., Right]


def rights_of(topics: PipelineTopics, task: Task, group: str) -> Sequence[Right]:
    """Implements `Connector.rights`."""
    return [*_TASKS[task](topics, group)]


def _run(topics: PipelineTopics, _: str) -> Iterator[Right]:
    name = topics.pipeline
    right = partial(Right, Task.RUN)
    for read, is_prefix in _inputs(topics):
        yield right("topic", read, is_prefix, "read", "its records")
        yield right("topic", read, is_prefix, "describe_configs", "how long they are kept")
    for written in (topics.output, *topics.beside):
        yield right("topic", written, False, "write", "output")
        yield right("topic", written, False, "describe_configs", "how large a record may be")
    yield right("topic", topics.output, False, "read", "whether the ledger is as new")
    ledger = ledger_topic(name)
    yield right("topic", ledger, False, "read", "where it stands")
    yield right("topic", ledger, False, "write", "an entry for each batch")
    yield right("topic", ledger, False, "describe_configs", "that it is compacted")
    yield right("transactional_id", f"onceflow.{name}.", True, "write", "transactions")
    yield right("group", consumer_group(name), False, "read", "its position, for lag tools")
    yield right("group", bulletin_group(name), False, "read", "its bulletins")
    yield right("group", READER_GROUP, False, "describe", "readers, which never join it")
    yield right("cluster", CLUSTER, False, "describe_configs", "limits of transactions")


def _create(topics: PipelineTopics, _: str) -> Iterator[Right]:
    for name in (ledger_topic(topics.pipeline), topics.output, *topics.beside):
        yield Right(Task.CREATE, "topic", name, False, "create", "if it does not exist")


def _verify(topics: PipelineTopics, _: str) -> Iterator[Right]:
    yield Right(Task.VERIFY, "topic", topics.output, False, "read", "to see what was written")


def _resend(topics: PipelineTopics, _: str) -> Iterator[Right]:
    right = partial(Right, Task.RESEND)
    for written, is_prefix in _inputs(topics):
        yield right("topic", written, is_prefix, "write", "the records again")
    for read in topics.beside:
        yield right("topic", read, False, "read", "dead letters")
    transactional_id = resend_transactional_id(topics.pipeline)
    yield right("transactional_id", transactional_id, False, "write", "transactions")
    yield right("group", resend_group(topics.pipeline), False, "read", "how far it came")
    yield right("group", READER_GROUP, False, "describe", "readers, which never join it")


def _consume(topics: PipelineTopics, group: str) -> Iterator[Right]:
    yield Right(Task.CONSUME, "topic", topics.output, False, "read", "its records")
    yield Right(Task.CONSUME, "group", group, False, "read", "membership and position")


_TASKS: Mapping[Task, Callable[[PipelineTopics, str], Iterator[Right]]] = {
    Task.RUN: _run,
    Task.CREATE: _create,
    Task.VERIFY: _verify,
    Task.RESEND: _resend,
    Task.CONSUME: _consume,
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
