"""`onceflow doctor`: what here or at the brokers would break a run, each with its cure."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from onceflow.cli.shared.options import BootstrapServers, ConfigFile, kafka, settings_of
from onceflow.cli.shared.output import OutputOption, ResultFormat, print_json
from onceflow.clock import Deadline, SystemClock
from onceflow.errors import OnceflowError

if TYPE_CHECKING:
    from onceflow.contracts.connector import Broker
    from onceflow.devkit.jars import JarCache, JarSet
    from onceflow.java.choice import Java

REFUSED = 2
LOOK_UP_TIMEOUT_S = 15.0


class Grade(StrEnum):
    """The consequence of a check for a run."""

    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


_COLOURS = {Grade.OK: "green", Grade.NOTE: "cyan", Grade.FAULT: "red"}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `found` names the cure if it is not right."""

    name: str
    level: Grade
    found: str


def doctor(
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
    output: OutputOption = ResultFormat.TEXT,
) -> None:
    """Check Python, Java, packages, jars and brokers. Exits with 2 if something must be fixed.

    Names the fix of each fault, and says which Java is used and why.
    """
    from onceflow.cli.shared.terminal import say

    checks = [*_machine(), *_brokers(bootstrap_servers, config)]
    if output is ResultFormat.JSON:
        for check in checks:
            print_json(asdict(check))
    else:
        for check in checks:
            say((f"{check.level:<7}", _COLOURS[check.level]), f" {check.name}: {check.found}")
    if any(check.level is Grade.FAULT for check in checks):
        raise typer.Exit(REFUSED)


def java_check(java: Java) -> Check:
    """Which Java is used, and who named it."""
    return Check("Java", Grade.OK, f"{java.release} at {java.home}, {java.origin}")


def archive_check(archive: Path) -> Check:
    """Whether Spark starts quickly on the Java in use."""
    name = "archive of Spark's classes"
    if archive.is_file():
        return Check(name, Grade.OK, "recorded for this Java")
    cure = (
        "`python -m onceflow.runtime.spark.record_classes` records one, so that Spark starts faster"
    )
    return Check(name, Grade.NOTE, f"none for this Java; {cure}")


def processors_check(missing: Sequence[str]) -> Check:
    """Whether processors run many keys at a time."""
    name = "processors in Spark's workers"
    if not missing:
        return Check(name, Grade.OK, "many keys at a time")
    return Check(name, Grade.NOTE, f"a key at a time, which is slow; missing: {', '.join(missing)}")


def jars_check(cache: JarCache, jars: JarSet) -> Check:
    """Whether the embedded broker can start without a network. A run needs none of its jars."""
    name = "jars of the embedded broker"
    faults = cache.faults(jars)
    if not faults:
        return Check(name, Grade.OK, f"{len(jars.sha256)}, verified")
    corrupt = [fault for fault in faults if Path(fault.where).exists()]
    if corrupt:
        cure = "with a network, the next `onceflow dev up` fetches them again"
        return Check(name, Grade.FAULT, f"{'; '.join(map(str, corrupt))}; {cure}")
    missing = f"{len(faults)} of {len(jars.sha256)} are missing"
    return Check(name, Grade.NOTE, f"{missing}; the first `onceflow dev up` fetches them")


def client_check() -> Check:
    """Whether Spark would find Kafka's client, as it was locked."""
    from onceflow.java.kafka_jars import require_kafka_jars

    name = "Kafka's client of Spark"

    def compare() -> Check:
        require_kafka_jars()
        return Check(name, Grade.OK, "installed and verified")

    return _tried(name, compare)


def _machine() -> Iterator[Check]:
    from onceflow.devkit.jars import JarCache, jar_set

    yield Check("Python", Grade.OK, platform.python_version())
    for package in ("pyspark", "confluent-kafka", "pyarrow"):
        yield _package(package)
    yield from _java()
    yield jars_check(JarCache.of_user(), jar_set("broker"))


def _java() -> Iterator[Check]:
    from onceflow.cli.pipeline.analysis import has_spark
    from onceflow.java.choice import find_java
    from onceflow.runtime.spark.home import class_archive

    found = _tried("Java", lambda: java_check(find_java()))
    yield found
    if found.level is Grade.OK and has_spark():
        yield archive_check(class_archive(find_java()))
    if has_spark():
        yield client_check()
        from onceflow.pipeline.process.operator import missing_names

        yield processors_check(missing_names())


def _package(name: str) -> Check:
    try:
        return Check(name, Grade.OK, version(name))
    except PackageNotFoundError:
        return Check(name, Grade.FAULT, "not installed; pip install 'onceflow[service]'")


def _brokers(bootstrap_servers: str | None, config: Path | None) -> Iterator[Check]:
    connection = settings_of(bootstrap_servers, config).connection()
    with closing(kafka().broker(connection)) as broker:

        def reach() -> Check:
            found = f"{broker.brokers(_deadline())} alive at {connection.bootstrap_servers}"
            return Check("brokers", Grade.OK, found)

        reached = _tried("brokers", reach)
        yield reached
        if reached.level is Grade.OK:
            yield from _broker_settings(broker)


def _broker_settings(broker: Broker) -> Iterator[Check]:
    from onceflow.runtime.start.preflight import transaction_faults

    alive = broker.brokers(_deadline())
    settings = broker.broker_config(_deadline())
    faults = transaction_faults(settings, alive)
    yield Check(
        "transactions",
        Grade.FAULT if faults else Grade.OK,
        "; ".join(map(str, faults)) or "the brokers can store their log",
    )
    unclean = settings.get("unclean.leader.election.enable", "false")
    if unclean == "false":
        yield Check("unclean leader election", Grade.OK, "off")
    else:
        cure = "set unclean.leader.election.enable=false: it can lose acknowledged records"
        yield Check("unclean leader election", Grade.FAULT, f"{unclean}; {cure}")


def _tried(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except OnceflowError as error:
        return Check(name, Grade.FAULT, str(error))


def _deadline() -> Deadline:
    return SystemClock().within(LOOK_UP_TIMEOUT_S)
