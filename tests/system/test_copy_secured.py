"""A target `kafka` that lets in only who signs in, and allows only what was granted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onceflow.clock import SystemClock
from onceflow.columns import NO_COLUMNS
from onceflow.contracts.connector import Connection, Right, Task, find_connector
from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Mark, Move, Target
from onceflow.contracts.target_block import TargetSpec
from onceflow.errors import ConfigError
from onceflow.protocol.identity import DELIVERIES_TOPIC
from onceflow_connectors.kafka.delivery.block import KafkaBlock
from tests.support.brokers.secured import SIGNED, SecuredBroker, secured_broker
from tests.support.outside.history import read_topic
from tests.support.outside.topics import ANSWER_TIMEOUT_S, create_topic
from tests.support.sites.token_endpoint import TokenEndpoint, answering

NAME, PASSWORD, WRONG = "jane", "pw-marker-3d8", "wrong-marker-5e2"
TOPIC, COPY = "views", "views-copy"
RIGHTS = (
    ("topic", COPY, False, "write describe describe_configs"),
    ("topic", DELIVERIES_TOPIC, False, "read write describe describe_configs create"),
    ("group", "onceflow.reader", False, "describe"),
    ("transactional_id", "onceflow-delivery.copy.", True, "write describe"),
)
"""As docs/deliveries.md says."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    issuer = TokenEndpoint({})
    with answering(issuer, folder / "tokens") as tokens, secured_broker(folder, tokens) as made:
        made.set_password(NAME, PASSWORD)
        create_topic(made.bootstrap_servers, TOPIC)
        create_topic(made.bootstrap_servers, COPY)
        yield made


def target(broker: SecuredBroker, folder: Path, password: str) -> Target:
    (folder / "west.properties").write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={NAME}\nsasl.password={password}\n"
        f"ssl.ca.location={broker.authority.certificate}\n"
    )
    given = {"properties_file": "west.properties", "topic": COPY}
    given["bootstrap_servers"] = broker.address_of(SIGNED)
    source = Connection(broker.bootstrap_servers)
    spec = TargetSpec("copy", NO_COLUMNS, folder, (TOPIC,), source)
    return KafkaBlock.model_validate(given).target(spec)


def grant(broker: SecuredBroker, without: tuple[str, str] = ("", "")) -> None:
    """Grant everything that is needed, but for an operation on one resource."""
    broker.revoke_all()
    rights = [
        Right(Task.RUN, resource, name, is_prefix, operation, "the copy")
        for resource, name, is_prefix, operations in RIGHTS
        for operation in operations.split()
        if (name, operation) != without
    ]
    deadline = SystemClock().within(ANSWER_TIMEOUT_S)
    connection = Connection(broker.bootstrap_servers)
    find_connector("kafka").grant(f"User:{NAME}", rights, connection, deadline)


def test_the_rights_of_the_page_are_enough(broker: SecuredBroker, tmp_path: Path) -> None:
    grant(broker)
    with closing(target(broker, tmp_path, PASSWORD)) as copy:
        copy.check()
        copy_one(copy)
        assert copy.positions() == {(TOPIC, 0): Mark(1, "after")}
    assert [each.value for each in read_topic(broker.bootstrap_servers, COPY)] == [b"value"]


@pytest.mark.parametrize(
    "without", [(COPY, "write"), (DELIVERIES_TOPIC, "write"), (DELIVERIES_TOPIC, "read")]
)
def test_a_missing_right_ends_a_delivery(
    broker: SecuredBroker, tmp_path: Path, without: tuple[str, str]
) -> None:
    grant(broker)
    with closing(target(broker, tmp_path, PASSWORD)) as copy:
        copy.check()
    grant(broker, without)
    with (
        closing(target(broker, tmp_path, PASSWORD)) as copy,
        pytest.raises(ConfigError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        copy_one(copy)


def copy_one(copy: Target) -> None:
    claim = copy.claim((TOPIC, 0))
    offset = claim.mark.offset if claim.mark else 0
    record = Record(TOPIC, 0, offset, 0, b"key", b"value")
    copy.write(Batch([record], (), [Move(claim, Mark(offset + 1, "after"))]))


def test_a_wrong_password_is_one_sentence_that_does_not_show_it(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    with closing(target(broker, tmp_path, WRONG)) as copy, pytest.raises(ConfigError) as refused:
        copy.check()
    told = str(refused.value)
    assert "no Kafka broker lets us in" in told
    assert "correct `properties_file`" in told
    assert WRONG not in told
