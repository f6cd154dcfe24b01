"""`onceflow doctor`: what here or at the brokers would break a run, each with its cure."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from onceflow.cli.options import BootstrapServers, ConfigFile, settings_of
from onceflow.cli.output import OutputFormat, OutputOption, chosen, print_json

if TYPE_CHECKING:
    from onceflow.clock import Deadline
    from onceflow.contracts.connector import Broker

REFUSED = 2
LOOK_UP_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Args:
        name: of the thing.
        is_right: whether a run can succeed with it.
        found: what there is; with the cure if it is not right.
    """

    name: str
    is_right: bool
    found: str


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = None,
) -> None:
    """Check Python, Java, packages, jars and brokers. Exit code 2 if something must be mended."""
    checks = [*_machine(), *_brokers(bootstrap_servers, config)]
    if chosen(output) is OutputFormat.JSON:
        for check in checks:
            print_json({"check": check.name, "is_right": check.is_right, "found": check.found})
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.is_right else 'BAD '} {check.name}: {check.found}")
    if not all(check.is_right for check in checks):
        raise typer.Exit(REFUSED)


def _machine() -> Iterator[Check]:
    from onceflow.devkit.java import find_java

    yield Check("Python", True, platform.python_version())
    for package in ("pyspark", "confluent-kafka", "pyarrow"):
        yield _package(package)
    yield _tried("Java", lambda: f"{find_java().version} at {find_java().executable}")


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, "not installed; pip install 'onceflow[service]'")


def _brokers(bootstrap_servers: str | None, config: Path | None) -> Iterator[Check]:
    from onceflow.cli.run import CONNECTOR
    from onceflow.contracts.connector import find_connector

    connection = settings_of(bootstrap_servers, config).connection()
    broker = find_connector(CONNECTOR).broker(connection)
    try:
        reached = _tried(
            f"brokers at {connection.bootstrap_servers}",
            lambda: f"{broker.brokers(_deadline())} alive",
        )
        yield reached
        if reached.is_right:
            yield from _broker_settings(broker)
    finally:
        broker.close()


def _broker_settings(broker: Broker) -> Iterator[Check]:
    from onceflow.runtime.preflight import transaction_faults

    alive = broker.brokers(_deadline())
    settings = broker.broker_config(_deadline())
    faults = transaction_faults(settings, alive)
    yield Check(
        "transactions",
        not faults,
        "; ".join(map(str, faults)) or "the broker can hold their log",
    )
    unclean = settings.get("unclean.leader.election.enable", "false")
    yield Check("unclean leader election", unclean == "false", unclean)


def _tried(name: str, look: Callable[[], str]) -> Check:
    from onceflow.errors import OnceflowError

    try:
        return Check(name, True, look())
    except OnceflowError as error:
        return Check(name, False, str(error))


def _deadline() -> Deadline:
    from onceflow.clock import Deadline, SystemClock

    return Deadline.after(SystemClock(), LOOK_UP_TIMEOUT_S)
