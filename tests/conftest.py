"""Fixtures for every test: a real broker, names of its own, a seed."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
import pytest

from onceflow.devkit.broker_config import COPIES
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.brokers.choice import BrokerChoice, RunningBroker, choose_broker
from tests.support.brokers.cluster import FaultyCluster
from tests.support.everything import is_everything

SEED_VARIABLE = "ONCEFLOW_TEST_SEED"
SEED = pytest.StashKey[int]()
CHOICE = pytest.StashKey[BrokerChoice]()
STARTED = pytest.StashKey[RunningBroker]()
ADDRESS = "bootstrap_servers"
"""Key of the broker that the workers of a run share, in the input that each gets at its start."""
WITHOUT_BROKER = {"deploy", "spark", "unit"}
"""Folders of tests that need none."""
PLACE = "broker"
"""Name of the property of a test that tells what it ran on."""

OWN_CLUSTER = "an embedded cluster of three"
SHARED_CLUSTER = "a shared cluster of three"
NO_BROKER = "no broker"
SHARED_FIXTURE = "shared_cluster"

# jsonschema would build 38 grammars, which takes 5 s of every worker, for a format that none of our
# schemas has.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# Machines that run tests are busy: a slow example is not a wrong one.
hypothesis.settings.register_profile("onceflow", deadline=None)
hypothesis.settings.load_profile("onceflow")


def pytest_configure(config: pytest.Config) -> None:
    # The workers of one run inherit its seed.
    seed = os.environ.setdefault(SEED_VARIABLE, str(secrets.randbits(32)))
    config.stash[SEED] = int(seed)
    # A shell starts background jobs deaf to it, and so would be every process that a test drains.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.stash[SEED]
    header = [f"seed: {seed} (the same again: {SEED_VARIABLE}={seed})"]
    if _is_spread(config):
        # Also builds the image, before several workers would do so at once.
        header.append(f"broker, shared by the workers: {_choice(config).title}")
    return header


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where the broker is.

    One for all workers: each of its own would take a sixth of the processor time of the suite.
    """
    config = node.config
    folders = [set(Path(argument.partition("::")[0]).parts) for argument in config.args]
    if all(WITHOUT_BROKER & parts for parts in folders):
        return
    if STARTED not in config.stash:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[STARTED] = stack.enter_context(_choice(config).start())
    node.workerinput[ADDRESS] = config.stash[STARTED].bootstrap_servers


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> str:
    if _is_spread(config):
        return ""
    if config.option.collectonly or not any(map(_needs_broker, items)):
        return "broker: none is needed"
    return f"broker: {_choice(config).title}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left alone with a file at the end."""
    left_out = _not_drawn(items, config)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: (item.get_closest_marker("explorer") is None, not _kills(item)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    item.user_properties.append((PLACE, _place(item)))
    yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    places = Counter(
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == PLACE
    )
    for place, count in sorted(places.items()):
        terminalreporter.write_line(f"{count} {'test' if count == 1 else 'tests'} ran on {place}")


def _place(item: pytest.Item) -> str:
    fixtures = _fixtures(item)
    if SHARED_FIXTURE in fixtures:
        return f"{SHARED_CLUSTER}, {_choice(item.config).cluster(COPIES).kind}"
    if "broker" in fixtures:
        return _choice(item.config).title
    return OWN_CLUSTER if "three_brokers" in fixtures else NO_BROKER


def _is_spread(config: pytest.Config) -> bool:
    return bool(config.getoption("numprocesses", default=None))


def _not_drawn(items: Sequence[pytest.Item], config: pytest.Config) -> Sequence[pytest.Item]:
    """Cases of tests with the mark `drawn` that this seed does not draw; none if one is asked for.

    All workers of a run have one seed, and so leave out the same.
    """
    if is_everything() or any("[" in argument for argument in config.args):
        return []
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if (mark := item.get_closest_marker("drawn")) is not None:
            test = item.nodeid.partition("[")[0], mark.args[0]
            cases.setdefault(test, []).append(item)
    found: list[pytest.Item] = []
    for (name, count), of_test in cases.items():
        drawn = Random(f"{config.stash[SEED]} {name}").sample(of_test, min(count, len(of_test)))
        found += [item for item in of_test if item not in drawn]
    return found


def _needs_broker(item: pytest.Item) -> bool:
    return not {"broker", SHARED_FIXTURE}.isdisjoint(_fixtures(item))


def _kills(item: pytest.Item) -> bool:
    return item.path.parent.name == "faults"


def _choice(config: pytest.Config) -> BrokerChoice:
    if CHOICE not in config.stash:
        config.stash[CHOICE] = choose_broker()
    return config.stash[CHOICE]


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run; printed at its top."""
    return pytestconfig.stash[SEED]


@pytest.fixture
def random(seed: int, request: pytest.FixtureRequest) -> Random:
    """Random numbers of this test alone, the same whenever the seed is."""
    return Random(f"{seed}/{request.node.nodeid}")


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> Iterator[RunningBroker]:
    """One real Kafka for the whole run: topics and ids must be unique for each test."""
    address = getattr(pytestconfig, "workerinput", {}).get(ADDRESS)
    shared = nullcontext(RunningBroker(address)) if address else None
    with shared or _choice(pytestconfig).start() as running:
        yield running


@pytest.fixture
def three_brokers() -> Iterator[ChildProcessCluster]:
    """Three brokers of this test's own, each of which may be killed and frozen."""
    with ChildProcessCluster(ClusterOptions(brokers=COPIES)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_cluster(pytestconfig: pytest.Config) -> Iterator[FaultyCluster]:
    """Three brokers for the tests of a module: to be asked for as `cluster`.

    Not for a session: idle, they take a tenth of a core.
    """
    with _choice(pytestconfig).cluster(COPIES) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: FaultyCluster) -> Iterator[FaultyCluster]:
    """Three healthy brokers to cause faults on: topics and ids must be unique for each test."""
    try:
        yield shared_cluster
    finally:
        shared_cluster.heal()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes topic names that no other test uses: `topic("clicks")`."""
    unique = f"{request.node.name.partition('[')[0][:60]}-{uuid.uuid4().hex[:8]}"
    return lambda name: f"{name}-{unique}"
