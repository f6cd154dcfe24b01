"""Every way to sign in, the renewal of what is signed in with, and secrets that stay secret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psutil
import pytest

from onceflow.clock import SystemClock
from onceflow.control.tokens import Role, line_of, new_token
from onceflow.errors import ConfigError
from onceflow.settings import Settings
from onceflow_connectors.consumer import Consumer as ConfluentConsumer
from onceflow_connectors.consumer import FilteringConsumer
from onceflow_connectors.consumer.kafka_python import Consumer as KafkaPythonConsumer
from onceflow_connectors.kafka_python_settings import kafka_python_settings
from tests.support.brokers.secured import (
    CONSUMERS,
    SIGNED,
    SecuredBroker,
    grant_to_run,
    secured_broker,
    settings_by_certificate,
)
from tests.support.drivers.here import run_here
from tests.support.drivers.service import Service, started
from tests.support.jobs.contained import wait_for_all
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_topic
from tests.support.sites.token_endpoint import TokenEndpoint, answering

NAME = "jane"
PASSWORD, SECRET, TOKEN_MARK = "pw-marker-7f1", "secret-marker-2c9", "token-marker"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    issuer = TokenEndpoint({NAME: SECRET})
    with answering(issuer, folder / "tokens") as tokens, secured_broker(folder, tokens) as made:
        made.set_password(NAME, PASSWORD)
        yield made


@pytest.fixture
def job(broker: SecuredBroker, tmp_path: Path) -> ViewsJob:
    job = ViewsJob(broker.bootstrap_servers, tmp_path)
    job.create_input()
    job.produce(Random(1), records=500, seconds=100)
    grant_to_run(broker, job.write_file(), NAME)
    return job


def by_password(broker: SecuredBroker, folder: Path) -> dict[str, Any]:
    (folder / "password").write_text(PASSWORD)
    return {
        "bootstrap_servers": broker.address_of(SIGNED),
        "tls": {"ca_file": str(broker.authority.certificate)},
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "username": NAME,
            "password_file": str(folder / "password"),
        },
    }


def by_token(broker: SecuredBroker, folder: Path) -> dict[str, Any]:
    (folder / "client-secret").write_text(SECRET)
    sasl = {
        "mechanism": "OAUTHBEARER",
        "token_endpoint": broker.tokens.address,
        "client_id": NAME,
        "client_secret_file": str(folder / "client-secret"),
        "token_ca_file": str(broker.tokens.authority),
    }
    return {**by_password(broker, folder), "sasl": sasl}


WAYS: Mapping[str, Callable[[SecuredBroker, Path], dict[str, Any]]] = {
    "SCRAM over TLS": by_password,
    "OAUTHBEARER over TLS": by_token,
    "mutual TLS": settings_by_certificate,
}
FLAVOURS: Mapping[str, tuple[Callable[..., FilteringConsumer], Callable[[Any], Any]]] = {
    "confluent": (ConfluentConsumer, dict),
    "kafka-python": (KafkaPythonConsumer, kafka_python_settings),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_set_of_settings_serves_driver_executors_and_consumers(
    broker: SecuredBroker, job: ViewsJob, way: str
) -> None:
    settings = Settings.model_validate(WAYS[way](broker, job.folder))
    connection = settings.connection()
    job.close_windows()
    run_here(job.write_file(), connection)
    job.check()
    written = len(read_topic(broker.bootstrap_servers, job.output_topic))
    for flavour, (consumer, translated) in FLAVOURS.items():
        if (flavour, way) == ("kafka-python", "OAUTHBEARER over TLS"):
            continue  # it would need our own code to fetch tokens
        with consumer(
            connection.bootstrap_servers,
            group=CONSUMERS,
            topics=[job.output_topic],
            properties=translated(connection.properties),
        ) as records:
            patience, seen = SystemClock().within(30), 0
            while seen < written and not patience.is_over:
                seen += records.poll(1) is not None
        assert seen == written, flavour
    if way == "OAUTHBEARER over TLS":
        assert broker.tokens.issued


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sasl": "password"}, "SASL"),
        ({"tls": {}}, "SSL|certificate"),
    ],
)
def test_who_cannot_sign_in_is_told_why(
    broker: SecuredBroker, job: ViewsJob, change: dict[str, Any], told: str
) -> None:
    settings = by_password(broker, job.folder)
    if change.get("sasl"):
        (job.folder / "password").write_text("wrong")
    else:
        settings |= change
    with pytest.raises(ConfigError, match=told) as refused:
        run_here(job.write_file(), Settings.model_validate(settings).connection())
    assert PASSWORD not in str(refused.value)


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"ONCEFLOW_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }


@contextmanager
def serving(job: ViewsJob, settings: Mapping[str, Any], **more: object) -> Iterator[Service]:
    file = job.write_file(batch=100)
    variables = environment({**settings, **more})
    address = settings["bootstrap_servers"]
    with started(
        job.folder / "serve", file, address, command="serve", environment=variables
    ) as service:
        yield service


def test_a_renewed_certificate_is_used_and_nothing_is_lost(
    broker: SecuredBroker, job: ViewsJob
) -> None:
    """The old certificate is of a user without any rights left."""
    settings = settings_by_certificate(broker, job.folder, "jane-1")
    grant_to_run(broker, job.write_file(), "jane-1", "jane-2")
    with serving(job, settings) as service:
        service.wait_for("batch", 2)
        settings_by_certificate(broker, job.folder, "jane-2")
        service.wait_for("renewed")
        service.wait_for("running", 2)
        broker.revoke_all("User:jane-1")
        job.produce(Random(2), records=200, seconds=100)
        wait_for_all(job, service)
        service.drain()
    assert service.of_kind("failed") == []
    job.close_windows()
    run_here(job.write_file(), Settings.model_validate(settings).connection())
    job.check()


def by_everything(broker: SecuredBroker, folder: Path) -> dict[str, Any]:
    """A password, and a certificate that is never asked for."""
    tls = settings_by_certificate(broker, folder)["tls"]
    return {**by_password(broker, folder), "tls": tls}


@pytest.mark.parametrize("way", [by_everything, by_token])
def test_secrets_are_told_to_nobody(
    broker: SecuredBroker, job: ViewsJob, way: Callable[..., dict[str, Any]]
) -> None:
    """Markers are planted, and looked for in everything that comes out of a service."""
    settings = way(broker, job.folder)
    token = new_token()
    (job.folder / "tokens").write_text(line_of(token, Role.WRITE, "bob"))
    control = {"port": 0, "tokens_file": str(job.folder / "tokens")}
    said: dict[str, str] = {}
    with serving(job, settings, control=control) as service:
        service.wait_for("batch", 2)
        for one in [psutil.Process(service.process.pid), *service.children()]:
            with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
                said[f"process {one.pid}"] = " ".join(one.cmdline()) + str(one.environ())
        ports = {event["what"]: event["port"] for event in service.of_kind("listening")}
        said |= dict(asked(ports, token, job.name))
        service.drain()
    said["events"] = (service.folder / "stdout").read_text()
    said["errors"] = service.errors
    for file in job.checkpoint.rglob("*"):
        if file.is_file():
            said[str(file)] = file.read_bytes().decode("latin-1")
    for topic in (f"onceflow.ledger.{job.name}", job.output_topic):
        said[topic] = str(read_topic(broker.bootstrap_servers, topic))
    marks = [PASSWORD, SECRET, token, *key_lines(job.folder / "key_file.pem")]
    found = [(mark, place) for place, text in said.items() for mark in marks if mark in text]
    assert found == []
    assert len(said) > 15


def asked(ports: Mapping[str, int], token: str, pipeline: str) -> Iterator[tuple[str, str]]:
    """Collect everything that a service answers to a user who may read."""
    monitoring = f"http://127.0.0.1:{ports['monitoring']}"
    yield "metrics", httpx.get(f"{monitoring}/metrics", timeout=30).text
    control = f"http://127.0.0.1:{ports['control']}"
    headers = {"Authorization": f"Bearer {token}"}
    described = httpx.get(f"{control}/v1/openapi.json", headers=headers, timeout=30).json()
    for path, operations in described["paths"].items():
        if "get" in operations:
            url = control + path.replace("{name}", pipeline).replace("{number}", "1")
            answer = httpx.get(url, headers=headers, timeout=30)
            yield path, answer.text
    yield "page", httpx.get(control, headers=headers, timeout=30).text


def key_lines(file: Path) -> list[str]:
    """The secret part of a PEM file."""
    if not file.exists():
        return []
    lines = re.findall(r"^[A-Za-z0-9+/=]{40,}$", file.read_text(), re.MULTILINE)
    assert lines
    return lines
