"""Every command with a file of every kind: it works, or says in one sentence what it takes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError
from tests.support.brokers.choice import RunningBroker
from tests.support.outside.topics import create_topic
from tests.support.sites.receiver import ALWAYS, Receiver, Rule, running_receiver

FILES = {
    "delivery": """\
apiVersion: onceflow/v1
kind: delivery
name: NAME
from: {topics: [NAME], schema: "n BIGINT"}
to: {http: {url: "URL"}}
dead_letter: {topic: NAME-dead}
""",
    "enrichment": """\
apiVersion: onceflow/v1
kind: enrichment
name: NAME
from: {topics: [NAME], schema: "n BIGINT"}
ask: {http: {url: "URL/{n}"}}
answer: {as: answer, schema: "serial BIGINT"}
to: {topic: NAME-out, create: true}
dead_letter: {topic: NAME-dead}
""",
    "gateway": """\
apiVersion: onceflow/v1
kind: gateway
name: NAME
topics: {NAME: {schema: "n BIGINT"}}
""",
}
NO_FILE = {
    "init",
    "produce",
    "consume",
    "demo",
    "doctor",
    "fetch",
    "version",
    "control token",
    "dev up",
    "dev down",
    "dev status",
}
WORKS = ""
STUCK = "exit 1"
"""It works, and finds that nothing runs."""
ONLY_PIPELINES = {
    "delivery": r"a delivery, and this command takes pipelines only: .*onceflow status` shows",
    "enrichment": r"an enrichment, and this command takes pipelines only: .*onceflow status` shows",
    "gateway": r"a gateway, and this command takes pipelines only: .*onceflow status` shows",
}
NO_LETTERS = r"a gateway has no dead letters"


def of_all(outcome: str) -> Mapping[str, str]:
    return dict.fromkeys(FILES, outcome)


@dataclass(frozen=True)
class Row:
    """A command with more arguments, and what it does with each kind."""

    outcomes: Mapping[str, str]
    arguments: Sequence[str] = ()


ROWS = {
    "validate": Row(of_all(WORKS)),
    "explain": Row(of_all(WORKS)),
    "run": Row(
        {**of_all(WORKS), "gateway": "a gateway has nothing to catch up with"},
        ("--until", "caught-up"),
    ),
    # That it runs them is shown by the tests of their pages.
    "serve": Row(of_all("this option is of pipelines"), ("--standby",)),
    "status": Row({**of_all(WORKS), "gateway": "has never run: .*run it once"}),
    "why-stuck": Row(of_all(STUCK)),
    "acls": Row(of_all(WORKS)),
    "dead-letter list": Row({**of_all(WORKS), "gateway": NO_LETTERS}),
    "dead-letter show": Row(
        {**of_all("there is no dead letter"), "gateway": NO_LETTERS}, ("0", "7")
    ),
    "dead-letter replay": Row(
        {
            "delivery": WORKS,
            "enrichment": "cannot be sent again: .*start an enrichment of another name",
            "gateway": NO_LETTERS,
        }
    ),
    "skip": Row(
        {**of_all(WORKS), "gateway": "a gateway.*takes deliveries and enrichments only"},
        ("--to", "latest"),
    ),
    "fork": Row(ONLY_PIPELINES),
    "parameters set": Row(ONLY_PIPELINES, ("limit", "1")),
    "parameters unset": Row(ONLY_PIPELINES, ("limit",)),
    "parameters get": Row(ONLY_PIPELINES),
    "ledger show": Row(ONLY_PIPELINES),
    "ledger verify": Row(ONLY_PIPELINES),
    "ledger rebuild": Row(ONLY_PIPELINES),
    "state list": Row(ONLY_PIPELINES),
    "state get": Row(ONLY_PIPELINES),
    "state export": Row(ONLY_PIPELINES),
    "state diff": Row(ONLY_PIPELINES),
    "state size": Row(ONLY_PIPELINES),
    "state migrate": Row(ONLY_PIPELINES),
}


@pytest.fixture(scope="module")
def shop() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        json_type = {"Content-Type": "application/json"}
        receiver.obey(Rule(times=ALWAYS, headers=json_type, body='{"serial": $number}'))
        yield receiver


@pytest.fixture(scope="module")
def files(
    broker: RunningBroker, shop: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """A file of each kind, whose topics exist."""
    folder = tmp_path_factory.mktemp("kinds")
    found = {}
    for kind, text in FILES.items():
        # Each worker has files of its own.
        name = f"commands-{kind}-{uuid.uuid4().hex[:6]}"
        for topic in (name, f"{name}-dead"):
            create_topic(broker.bootstrap_servers, topic)
        found[kind] = folder / f"{name}.yaml"
        found[kind].write_text(text.replace("NAME", name).replace("URL", shop.url))
    return found


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))
    if path and not hasattr(command, "commands"):
        yield " ".join(path), command


def test_every_command_is_in_the_table() -> None:
    assert {name for name, _ in commands(get_command(build_app()))} == {*ROWS, *NO_FILE}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", ROWS)
def test_it_works_or_says_what_to_do(
    name: str,
    kind: str,
    files: Mapping[str, Path],
    broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONCEFLOW_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    row = ROWS[name]
    done = CliRunner().invoke(
        build_app(), [*name.split(), str(files[kind]), *row.arguments, *required(name)]
    )
    expected = row.outcomes[kind]
    if expected in {WORKS, STUCK}:
        assert done.exit_code == int(expected == STUCK), (done.output, done.exception)
        return
    assert isinstance(done.exception, ConfigError), (done.output, done.exception)
    assert re.search(expected, str(done.exception))


def required(name: str) -> Sequence[str]:
    """Values for options that a command needs and the table does not give."""
    command = dict(commands(get_command(build_app())))[name]
    given = {each for each in ROWS[name].arguments if each.startswith("--")}
    found: list[str] = []
    for option in command.params:
        is_option = option.param_type_name == "option"
        if is_option and option.required and not given & {*option.opts}:
            found += [option.opts[0], "1"]
    return found
