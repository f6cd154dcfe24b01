"""The rights that are documented, against a broker that grants nothing else.

A right that is taken away makes the run fail, so each is needed; with all of them it succeeds, so
no other is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.cli.operate.acls import topics_of
from onceflow.clock import Deadline, SystemClock
from onceflow.contracts.connector import Connection, PipelineTopics, Right, Task, find_connector
from onceflow.errors import CorruptionError, FencedError, OnceflowError
from onceflow.observe.facts import Facts
from onceflow.observe.survey import Survey
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.repair.dead_letters import Resender
from onceflow.settings import Sasl, Settings, Tls
from onceflow_connectors.consumer import Consumer as ConfluentConsumer
from onceflow_connectors.consumer import FilteringConsumer, Record
from onceflow_connectors.consumer.kafka_python import Consumer as KafkaPythonConsumer
from onceflow_connectors.kafka_python_settings import kafka_python_settings
from tests.support.brokers.secured import SIGNED, SecuredBroker, secured_broker
from tests.support.drivers.here import batches, end_engine, run_here
from tests.support.jobs.views import ViewsJob
from tests.support.outside.topics import ordered_producer
from tests.support.sites.token_endpoint import TokenEndpoint

NAME = "jane"
PASSWORD = "correct horse"
PIPELINE = "rights"
GROUP = "readers"
KAFKA = find_connector("kafka")


@dataclass
class Account:
    """A pipeline with everything that it may write, and a principal that runs it."""

    broker: SecuredBroker
    connection: Connection
    job: ViewsJob
    file: Path

    def environment(self) -> dict[str, str]:
        """The same settings, for a command."""
        return {
            "ONCEFLOW_BOOTSTRAP_SERVERS": self.broker.address_of(SIGNED),
            "ONCEFLOW_TLS__CA_FILE": str(self.broker.authority.certificate),
            "ONCEFLOW_SASL__MECHANISM": "SCRAM-SHA-512",
            "ONCEFLOW_SASL__USERNAME": NAME,
            "ONCEFLOW_SASL__PASSWORD_FILE": str(self.job.folder / "password"),
        }

    def rights(self, *tasks: Task) -> list[Right]:
        topics = topics_of(load_pipeline(self.file))
        return [right for task in tasks for right in KAFKA.rights(topics, task, GROUP)]

    def grant(self, rights: Sequence[Right]) -> None:
        """These and no others, for a process that starts after this."""
        # A client that was refused in the background says so at its next read.
        end_engine()
        self.broker.revoke_all()
        if rights:
            admin = Connection(self.broker.bootstrap_servers)
            KAFKA.grant(f"User:{NAME}", rights, admin, deadline())

    def all_but(self, left_out: str, *tasks: Task) -> None:
        """Grant what the tasks need, without one right; fails if they do not need that one."""
        rights = self.rights(*tasks)
        kept = [right for right in rights if short(right) != left_out]
        assert len(kept) == len(rights) - 1
        self.grant(kept)

    def produce(self) -> None:
        """Views, and a record that is none."""
        self.job.produce(Random(1), records=50, seconds=100)
        with_a_fault = ordered_producer(self.broker.bootstrap_servers)
        with_a_fault.produce(self.job.input_topic, b"not a view", partition=0)
        assert with_a_fault.flush(30) == 0


def deadline() -> Deadline:
    return SystemClock().within(30)


def short(right: Right) -> str:
    """The same for every pipeline."""
    name = re.sub(rf"{PIPELINE}(-\d)?", "P", right.name.removeprefix("onceflow."))
    return f"{right.resource}:{name}:{right.operation}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured"), TokenEndpoint({})) as broker:
        broker.set_password(NAME, PASSWORD)
        yield broker


def open_account(broker: SecuredBroker, folder: Path, name: str) -> Account:
    (folder / "password").write_text(PASSWORD)
    settings = Settings(
        bootstrap_servers=broker.address_of(SIGNED),
        tls=Tls(ca_file=str(broker.authority.certificate)),
        sasl=Sasl(mechanism="SCRAM-SHA-512", username=NAME, password_file=str(folder / "password")),
    )
    job = ViewsJob(broker.bootstrap_servers, folder, name)
    job.create_input()
    file = job.write_file(extra=f"dead_letter: {{topic: {name}-dead}}\n")
    return Account(broker, settings.connection(), job, file)


@pytest.fixture(scope="module")
def account(broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Everything was granted, and it has run. At the end it is again, and nothing is missing."""
    account = open_account(broker, tmp_path_factory.mktemp("account"), PIPELINE)
    account.grant(account.rights(Task.RUN, Task.CREATE))
    account.produce()
    run_here(account.file, account.connection)
    yield account
    account.grant(account.rights(Task.RUN))
    account.job.close_windows()
    run_here(account.file, account.connection)
    account.job.check()


@contextmanager
def survey(account: Account) -> Iterator[Callable[[], Facts]]:
    """Yields a look at the pipeline with the principal's rights."""
    name, connection = account.job.name, account.connection
    tools = KAFKA.broker(connection), KAFKA.ledger(name, connection)
    board = KAFKA.bulletin_board(name, connection)

    def look() -> Facts:
        return Survey(name, tools[1], tools[0], board, SystemClock()).facts()

    try:
        yield look
    finally:
        for tool in (*tools, board):
            tool.close()


NEEDED_TO_RUN = [
    "topic:P-in:read",
    "topic:P-in:describe_configs",
    "topic:P-out:write",
    "topic:P-out:describe_configs",
    "topic:P-out:read",
    "topic:P-dead:write",
    "topic:P-dead:describe_configs",
    "topic:ledger.P:read",
    "topic:ledger.P:write",
    "topic:ledger.P:describe_configs",
    "transactional_id:P.:write",
    "group:P:read",
    "group:reader:describe",
    "cluster:kafka-cluster:describe_configs",
]
TO_LOOK = "group:P.bulletins:read"
"""Without it a pipeline runs, and its state is not seen."""
NEEDED_TO_CREATE = ["topic:ledger.P:create", "topic:P-out:create", "topic:P-dead:create"]
NEEDED_TO_RESEND = [
    "topic:P-in:write",
    "topic:P-dead:read",
    "transactional_id:P.resend:write",
    "group:P.resend:read",
    "group:reader:describe",
]


def test_nothing_else_is_documented(account: Account) -> None:
    def shorts(task: Task) -> set[str]:
        return {short(right) for right in account.rights(task)}

    assert shorts(Task.RUN) == {*NEEDED_TO_RUN, TO_LOOK}
    assert shorts(Task.CREATE) == {*NEEDED_TO_CREATE}
    assert shorts(Task.VERIFY) == {"topic:P-out:read"}
    assert shorts(Task.RESEND) == {*NEEDED_TO_RESEND}
    assert shorts(Task.CONSUME) == {"topic:P-out:read", f"group:{GROUP}:read"}


def test_they_are_enough_to_run(account: Account) -> None:
    account.grant(account.rights(Task.RUN))
    account.produce()
    with survey(account) as look:
        assert batches(run_here(account.file, account.connection))
        assert look().blind == {}


@pytest.mark.parametrize("right", NEEDED_TO_RUN)
def test_each_is_needed_to_run(account: Account, right: str) -> None:
    account.all_but(right, Task.RUN)
    account.produce()
    with pytest.raises(OnceflowError, match="AUTHORIZATION_FAILED") as refused:
        run_here(account.file, account.connection)
    assert not isinstance(refused.value, FencedError | CorruptionError)


def test_one_is_needed_to_see_how_it_runs(account: Account) -> None:
    account.all_but(TO_LOOK, Task.RUN)
    with survey(account) as look:
        assert "AUTHORIZATION_FAILED" in look().blind["bulletins"]


@pytest.mark.parametrize("right", NEEDED_TO_CREATE)
def test_each_is_needed_to_create_topics(broker: SecuredBroker, tmp_path: Path, right: str) -> None:
    # Of a name of the same length, so that the rights look alike.
    name = f"{PIPELINE}-{NEEDED_TO_CREATE.index(right)}"
    account = open_account(broker, tmp_path, name)
    account.all_but(right, Task.RUN, Task.CREATE)
    account.produce()
    with pytest.raises(OnceflowError, match="AUTHORIZATION_FAILED"):
        run_here(account.file, account.connection)


def resend(account: Account) -> int:
    letters = KAFKA.broker(account.connection)
    topic = f"{account.job.name}-dead"
    try:
        resender = Resender(
            account.job.name,
            topic,
            letters,
            lambda name: KAFKA.incarnation(name, account.connection),
        )
        return resender.resend(deadline()).sent
    finally:
        letters.close()


@pytest.fixture
def dead_letters(account: Account) -> None:
    account.grant(account.rights(Task.RUN))
    account.produce()
    run_here(account.file, account.connection)


@pytest.mark.usefixtures("dead_letters")
def test_each_is_needed_to_resend_and_no_other(account: Account) -> None:
    for right in NEEDED_TO_RESEND:
        account.all_but(right, Task.RESEND)
        with pytest.raises(OnceflowError, match="AUTHORIZATION_FAILED"):
            resend(account)
    account.grant(account.rights(Task.RESEND))
    assert resend(account) >= 1


NEEDED_TO_CONSUME = ["topic:P-out:read", f"group:{GROUP}:read"]
FLAVOURS: dict[str, tuple[Callable[..., FilteringConsumer], Callable[[Any], Any]]] = {
    "confluent": (ConfluentConsumer, dict),
    "kafka-python": (KafkaPythonConsumer, kafka_python_settings),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_each_is_needed_to_consume_and_no_other(account: Account, flavour: str) -> None:
    consumer, translated = FLAVOURS[flavour]
    settings = account.connection

    def consume() -> Record | None:
        with consumer(
            settings.bootstrap_servers,
            group=GROUP,
            topics=[account.job.output_topic],
            properties=translated(settings.properties),
        ) as records:
            patience = deadline()
            while not patience.is_over:
                if (record := records.poll(1)) is not None:
                    records.commit()
                    return record
        return None

    account.grant(account.rights(Task.RUN))
    account.produce()
    run_here(account.file, account.connection)
    for right in NEEDED_TO_CONSUME:
        account.all_but(right, Task.CONSUME)
        with pytest.raises(
            OnceflowError, match=r"(?i)authori[sz]ation.?failed|this consumer may read"
        ):
            consume()
    account.grant(account.rights(Task.CONSUME))
    assert consume() is not None


def test_one_is_needed_to_verify(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in account.environment().items():
        monkeypatch.setenv(name, value)
    command = ["ledger", "verify", account.job.name]
    account.all_but("topic:P-out:read", Task.RUN)
    refused = CliRunner().invoke(build_app(), command)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(refused.exception)
    account.grant(account.rights(Task.RUN, Task.VERIFY))
    assert CliRunner().invoke(build_app(), command).exit_code == 0


def test_the_command_grants_them(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.broker.revoke_all()
    command = ["acls", str(account.file), "--for", "run", "--grant", f"User:{NAME}"]
    command += ["--bootstrap-servers", account.broker.bootstrap_servers, "-o", "json"]
    done = CliRunner().invoke(build_app(), command)
    assert done.exit_code == 0, done.output
    granted = [json.loads(line) for line in done.output.splitlines()]
    assert {right["granted"] for right in granted} == {f"User:{NAME}"}
    account.produce()
    assert batches(run_here(account.file, account.connection))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("clicks-.*", ("clicks-", True)),
        ("clicks", ("clicks", True)),
        ("clicks?", ("click", True)),
        ("a|b", ("*", False)),
        (".*", ("*", False)),
        ("ab{2}", ("a", True)),
    ],
)
def test_a_pattern_is_granted_by_what_all_its_names_begin_with(
    pattern: str, expected: tuple[str, bool]
) -> None:
    topics = PipelineTopics("p", inputs=[], patterns=[pattern], output="out", beside=[])
    right = KAFKA.rights(topics, Task.RUN, "")[0]
    assert (right.name, right.is_prefix) == expected
