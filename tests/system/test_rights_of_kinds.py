"""The rights that are documented for the other kinds, against a broker that grants nothing else.

As in `test_rights.py`: without any one of them a run fails, and with all of them it succeeds. A
delivery to another cluster signs in there as another principal.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
import pytest
from typer.testing import CliRunner

from onceflow.cli.kinds.commands import commands_for
from onceflow.cli.main import build_app
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, Right, Task, find_connector
from onceflow.delivery.letters import deliver_letters
from onceflow.delivery.loader import load_delivery
from onceflow.delivery.model import Carriage, Lent
from onceflow.delivery.run import Around, run_carriage
from onceflow.delivery.survey import opened_survey
from onceflow.enrichment.loader import load_enrichment
from onceflow.errors import ConfigError, OnceflowError
from onceflow.gateway.loader import load_gateway
from onceflow.gateway.run import Around as AroundGateway
from onceflow.gateway.run import run_gateway
from onceflow.ports import GatewayServer
from onceflow.repair.dead_letters import Resent
from onceflow.settings import Sasl, Settings, Tls
from tests.support.brokers.secured import SIGNED, SecuredBroker, secured_broker
from tests.support.eventually import eventually
from tests.support.outside.topics import create_topic, ordered_producer
from tests.support.sites.receiver import ALWAYS, Receiver, Rule, running_receiver
from tests.support.sites.token_endpoint import TokenEndpoint

KAFKA = find_connector("kafka")
PASSWORD = "correct horse"
READER, WRITER = "jane", "tom"
"""Principals at the brokers of the topics that are read, and at those of the target."""
TIMEOUT_S = 20.0
COMMON = """\
apiVersion: onceflow/v1
from: {topics: [NAME-in], schema: "n BIGINT NOT NULL", takeover_after: 6 seconds FOREIGN}
batch: {max_delay: 50 ms}
retry: {delay: 100 ms, max_delay: 200 ms}
dead_letter: {topic: NAME-dead}
name: NAME
"""
FOREIGN = ", foreign: deliver"
FILES = {
    "sent": COMMON.replace("FOREIGN", FOREIGN) + 'kind: delivery\nto: {http: {url: "URL"}}\n',
    "copied": COMMON.replace("FOREIGN", FOREIGN)
    + "kind: delivery\n"
    + "to: {kafka: {bootstrap_servers: BROKERS, properties_file: target, topic: NAME-out, "
    + "create: true}}\n",
    "asked": COMMON.replace("FOREIGN", "")
    + 'kind: enrichment\nask: {http: {url: "URL/{n}"}}\n'
    + 'answer: {as: answer, schema: "serial BIGINT"}\nto: {topic: NAME-out, create: true}\n',
    "posted": "apiVersion: onceflow/v1\nkind: gateway\nname: NAME\n"
    'topics: {NAME-in: {schema: "n BIGINT"}}\ntakeover_after: 6 seconds\n',
}
POSITIONS = [
    "topic:deliveries:read",
    "topic:deliveries:write",
    "topic:deliveries:describe_configs",
]
LETTERS = ["topic:P-dead:write", "topic:P-dead:describe_configs"]
OUTPUT = ["topic:P-out:write", "topic:P-out:describe_configs"]
NEEDED: dict[str, list[str]] = {
    "sent": [
        "topic:P-in:read",
        *LETTERS,
        "group:onceflow-delivery-P:read",
        *POSITIONS,
        "transactional_id:onceflow-delivery.P.:write",
        "group:reader:describe",
    ],
    "copied": ["topic:P-in:read", *LETTERS, "group:onceflow-delivery-P:read"],
    "asked": [
        "topic:P-in:read",
        *LETTERS,
        "group:onceflow-enrichment-P:read",
        *OUTPUT,
        *POSITIONS,
        "transactional_id:onceflow-delivery.enrichment:P.:write",
        "group:reader:describe",
    ],
    "posted": [
        "topic:P-in:write",
        "topic:P-in:describe_configs",
        "topic:gateway.P.keys:read",
        "topic:gateway.P.keys:write",
        "topic:gateway.P.keys:describe_configs",
        "topic:gateway.P.owners:read",
        "topic:gateway.P.owners:write",
        "topic:gateway.P.owners:describe_configs",
        "transactional_id:onceflow-gateway.P.:write",
        "group:onceflow-gateway-P:read",
        "group:reader:describe",
    ],
}
TO_LOOK = {
    "sent": ["topic:P-in:describe_configs"],
    "copied": ["topic:P-in:describe_configs", "group:reader:describe"],
    "asked": ["topic:P-in:describe_configs"],
}
"""Without these it runs, and not all of its state is seen."""
NEEDED_AT_TARGET = [
    *OUTPUT,
    *POSITIONS,
    "transactional_id:onceflow-delivery.P.:write",
    "group:reader:describe",
]
NEEDED_TO_RESEND = [
    "topic:P-dead:read",
    *LETTERS,
    *POSITIONS,
    "transactional_id:onceflow-delivery.P.:write",
    "group:reader:describe",
]
CREATED = {
    "sent": ["topic:P-dead:create", "topic:deliveries:create"],
    "copied": ["topic:P-dead:create"],
    "asked": ["topic:P-dead:create", "topic:P-out:create", "topic:deliveries:create"],
    "posted": ["topic:gateway.P.keys:create", "topic:gateway.P.owners:create"],
}


@dataclass
class Account:
    """A file of a kind, and the principals that run it."""

    kind: str
    broker: SecuredBroker
    connection: Connection
    file: Path
    told: list[str] = field(default_factory=list)

    def rights(self, *tasks: Task) -> list[Right]:
        commands = commands_for(self.file)
        assert commands is not None
        topics = commands.topics(self.file)
        return [right for task in tasks for right in KAFKA.rights(topics, task, "readers")]

    def grant(self, rights: Sequence[Right], principal: str = READER) -> None:
        """These and no others."""
        self.broker.revoke_all(f"User:{principal}")
        if rights:
            admin = Connection(self.broker.bootstrap_servers)
            KAFKA.grant(f"User:{principal}", rights, admin, SystemClock().within(30))

    def all_but(self, left_out: str, *tasks: Task, principal: str = READER) -> None:
        """Grant what the tasks need without one right; fails if they do not need that one."""
        rights = self.rights(*tasks)
        kept = [right for right in rights if self.short(right) != left_out]
        assert len(kept) == len(rights) - 1
        self.grant(kept, principal)

    def short(self, right: Right) -> str:
        name = right.name.removeprefix("onceflow.").replace(self.file.stem, "P")
        return f"{right.resource}:{name}:{right.operation}"

    def works(self) -> bool:
        """Run it with something to do; whether that is done. What was said is in `told`."""
        self.told.clear()
        if self.kind == "posted":
            return self._serves()
        producer = ordered_producer(self.broker.bootstrap_servers)
        for value in (b'{"n": 1}', b"no json"):
            producer.produce(f"{self.file.stem}-in", value)
        assert producer.flush(30) == 0
        return self._carries()

    def carriage(self) -> Carriage:
        is_asked = self.kind == "asked"
        return load_enrichment(self.file) if is_asked else load_delivery(self.file).delivery

    def _carries(self) -> bool:
        stop = threading.Event()
        timer = threading.Timer(TIMEOUT_S, stop.set)
        timer.start()
        around = Around(KAFKA, self.connection, SystemClock(), self._hear(stop), stop, Random(1))
        try:
            run_carriage(self.carriage(), around, is_until_caught_up=True)
        except OnceflowError as error:
            self.told.append(str(error))
        finally:
            timer.cancel()
        return self.told[-1].startswith("caught_up")

    def _serves(self) -> bool:
        stop = threading.Event()
        server = GatewayServer(port=0)
        around = AroundGateway(
            KAFKA, self.connection, server, SystemClock(), self._hear(stop), stop
        )
        ended: list[bool] = []

        def serve() -> None:
            try:
                run_gateway(load_gateway(self.file), around)
            except OnceflowError as error:
                self.told.append(str(error))
            ended.append(True)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return self._posts(stop, ended)
        finally:
            stop.set()
            thread.join(60)

    def _posts(self, stop: threading.Event, ended: list[bool]) -> bool:
        """Post with a key and without."""

        def port() -> int:
            found = [re.search(r"'port': (\d+)", said) for said in self.told]
            return next((int(match[1]) for match in found if match), 0)

        eventually(lambda: port() or ended, timeout_s=60)
        until = SystemClock().within(TIMEOUT_S)
        for headers in ({"Idempotency-Key": uuid.uuid4().hex}, {}):
            status = 0
            while status != 202 and not (until.is_over or stop.is_set() or ended):
                url = f"http://127.0.0.1:{port()}/v1/{self.file.stem}-in"
                try:
                    answer = httpx.post(url, json={"n": 1}, headers=headers, timeout=60)
                except httpx.ConnectError:
                    stop.wait(0.2)  # it has just ended, and says so next
                    continue
                status = answer.status_code
                self.told.append(answer.text)
                if "AUTHORIZATION" in answer.text:
                    return False
                stop.wait(0.2)
            if status != 202:
                return False
        return True

    def _hear(self, stop: threading.Event) -> Callable[..., None]:
        def hear(event: str, /, **facts: object) -> None:
            self.told.append(f"{event} {facts}")
            if "AUTHORIZATION" in str(facts):
                stop.set()

        return hear


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured"), TokenEndpoint({})) as broker:
        for name in (READER, WRITER):
            broker.set_password(name, PASSWORD)
        yield broker


@pytest.fixture(scope="module")
def shop() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        json_type = {"Content-Type": "application/json"}
        receiver.obey(Rule(times=ALWAYS, headers=json_type, body='{"serial": $number}'))
        yield receiver


def open_account(broker: SecuredBroker, folder: Path, kind: str, shop: Receiver) -> Account:
    """A file of its own, whose input exists."""
    ca_file, password = str(broker.authority.certificate), folder / "password"
    password.write_text(PASSWORD)
    (folder / "target").write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username={WRITER}\n"
        f"sasl.password={PASSWORD}\nssl.ca.location={ca_file}\n"
    )
    (folder / "target").chmod(0o600)
    settings = Settings(
        bootstrap_servers=broker.address_of(SIGNED),
        tls=Tls(ca_file=ca_file),
        sasl=Sasl(mechanism="SCRAM-SHA-512", username=READER, password_file=str(password)),
    )
    name = f"r-{kind}-{len([*folder.parent.iterdir()])}"
    text = FILES[kind].replace("NAME", name).replace("URL", shop.url)
    file = folder / f"{name}.yaml"
    file.write_text(text.replace("BROKERS", broker.address_of(SIGNED)))
    create_topic(broker.bootstrap_servers, f"{name}-in")
    return Account(kind, broker, settings.connection(), file)


@pytest.fixture(scope="module")
def accounts(
    broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory, shop: Receiver
) -> Callable[[str], Account]:
    """For each kind an account that has run, so that its topics exist."""
    made: dict[str, Account] = {}

    def account_of(kind: str) -> Account:
        if kind not in made:
            account = open_account(broker, tmp_path_factory.mktemp(kind), kind, shop)
            account.grant(account.rights(Task.RUN, Task.CREATE))
            if kind == "copied":
                account.grant(account.rights(Task.TARGET, Task.CREATE_TARGET), WRITER)
            assert account.works(), account.told
            made[kind] = account
        return made[kind]

    return account_of


@pytest.mark.parametrize("kind", FILES)
def test_nothing_else_is_documented_and_they_are_enough(
    accounts: Callable[[str], Account], kind: str
) -> None:
    account = accounts(kind)
    shorts = [account.short(right) for right in account.rights(Task.RUN)]
    assert sorted(shorts) == sorted([*NEEDED[kind], *TO_LOOK.get(kind, [])])
    account.grant(account.rights(Task.RUN))
    if kind == "copied":
        shorts = [account.short(right) for right in account.rights(Task.TARGET)]
        assert sorted(shorts) == sorted(NEEDED_AT_TARGET)
        account.grant(account.rights(Task.TARGET), WRITER)
    assert account.works(), account.told


@pytest.mark.parametrize(
    ("kind", "right"), [(kind, right) for kind, rights in NEEDED.items() for right in rights]
)
def test_each_is_needed_to_run(accounts: Callable[[str], Account], kind: str, right: str) -> None:
    account = accounts(kind)
    account.all_but(right, Task.RUN)
    if kind == "copied":
        account.grant(account.rights(Task.TARGET), WRITER)
    assert not account.works(), account.told
    assert "AUTHORIZATION" in str(account.told)


@pytest.mark.parametrize("right", NEEDED_AT_TARGET)
def test_each_is_needed_at_the_brokers_of_the_target(
    accounts: Callable[[str], Account], right: str
) -> None:
    account = accounts("copied")
    account.grant(account.rights(Task.RUN))
    account.all_but(right, Task.TARGET, principal=WRITER)
    assert not account.works(), account.told
    assert "AUTHORIZATION" in str(account.told)


@pytest.mark.parametrize(
    ("kind", "right"), [(kind, right) for kind, rights in TO_LOOK.items() for right in rights]
)
def test_some_are_needed_to_see_how_it_runs(
    accounts: Callable[[str], Account], kind: str, right: str
) -> None:
    account = accounts(kind)
    if kind == "copied":
        account.grant(account.rights(Task.TARGET), WRITER)
    account.grant(account.rights(Task.RUN))
    assert blind(account) == ""
    account.all_but(right, Task.RUN)
    # A refusal to find the coordinator of readers may come after the answer to a look.
    eventually(lambda: "AUTHORIZATION" in blind(account), timeout_s=60)


def ignore(event: str, /, **facts: object) -> None:
    """Take a report, and do nothing."""


def blind(account: Account) -> str:
    lent = Lent(KAFKA, account.connection, SystemClock(), ignore)
    producer = ordered_producer(account.broker.bootstrap_servers)
    producer.produce(f"{account.file.stem}-in", b'{"n": 2}')
    assert producer.flush(30) == 0
    with opened_survey(account.carriage(), lent) as survey:
        return str({**survey.facts().blind} or "")


@pytest.mark.parametrize(
    ("kind", "right"),
    [(kind, right) for kind, rights in CREATED.items() for right in rights if "deliv" not in right],
)
def test_each_is_needed_to_create_topics(
    broker: SecuredBroker, tmp_path: Path, shop: Receiver, kind: str, right: str
) -> None:
    account = open_account(broker, tmp_path, kind, shop)
    if kind == "copied":
        account.grant(account.rights(Task.TARGET, Task.CREATE_TARGET), WRITER)
    account.all_but(right, Task.RUN, Task.CREATE)
    assert not account.works(), account.told
    assert "AUTHORIZATION" in str(account.told)


def test_each_is_needed_to_resend_and_no_other(accounts: Callable[[str], Account]) -> None:
    account = accounts("sent")
    rights = [account.short(right) for right in account.rights(Task.RESEND)]
    assert sorted(rights) == sorted(NEEDED_TO_RESEND)

    def resend() -> Resent:
        stop = threading.Event()
        around = Around(KAFKA, account.connection, SystemClock(), ignore, stop, Random(1))
        delivery = load_delivery(account.file).delivery
        return deliver_letters(delivery, around, SystemClock().within(60))

    for right in rights:
        account.all_but(right, Task.RESEND)
        with pytest.raises(OnceflowError, match="AUTHORIZATION_FAILED"):
            resend()
    account.grant(account.rights(Task.RESEND))
    # Text that is not JSON is rejected again, and so is there for each of these.
    assert resend().kept >= 1


def test_the_command_lists_both_clusters_and_grants_at_one(
    accounts: Callable[[str], Account],
) -> None:
    account = accounts("copied")

    def acls(*arguments: str) -> list[dict[str, str]]:
        command = ["acls", str(account.file), "-o", "json", *arguments]
        done = CliRunner().invoke(build_app(), command)
        if done.exception is not None and isinstance(done.exception, OnceflowError):
            raise done.exception
        return [json.loads(line) for line in done.output.splitlines()]

    assert {right["task"] for right in acls()} == {"run", "create", "target", "create-target"}
    brokers = ("--bootstrap-servers", account.broker.bootstrap_servers)
    grant = ("--grant", f"User:{WRITER}", *brokers)
    with pytest.raises(ConfigError, match="of two clusters"):
        acls("--for", "run", "--for", "target", *grant)
    with pytest.raises(ConfigError, match="expected run, create, target, create-target"):
        acls("--for", "verify")
    account.grant(account.rights(Task.RUN))
    account.grant((), WRITER)
    assert {right["granted"] for right in acls("--for", "target", *grant)} == {f"User:{WRITER}"}
    assert account.works(), account.told
