"""The code in the README that needs a broker does what the README says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.documents.markdown import ROOT, CodeBlock, Document
from tests.support.drivers.driver import PARTITIONS, Driver
from tests.support.drivers.service import QUICK
from tests.support.eventually import eventually
from tests.support.outside.groups import group_offsets
from tests.support.outside.topics import create_topic

README = [*Document(ROOT / "README.md").blocks()]
BLOCKS = [block for block in README if "broker" in block.marks]
NAMED_BY_README = "my-views"
COMMAND_TIMEOUT_S = 240
"""Starting Spark takes seconds on an idle machine and half a minute on a loaded one."""
VALUES = [b'{"n":%d}' % n for n in range(20)]
MAX_LINES = 5
END_TIMEOUT_S = 30


@pytest.fixture
def output(broker: RunningBroker, topic: Callable[[str], str]) -> str:
    """An output topic that does not hold anything yet."""
    name = topic("p").lower().replace("_", "-")[-60:].strip("-")
    create_topic(broker.bootstrap_servers, name, PARTITIONS)
    return name


@contextmanager
def running(program: str, log: Path) -> Iterator[Callable[[], list[str]]]:
    """A process of its own, ended as by Ctrl-C; yields a look at what it has printed so far."""
    command = [sys.executable, "-u", "-c", program]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as process,
    ):
        try:
            yield lambda: log.read_text().splitlines()
            # Unlike a kill, this leaves the group: no member has to wait for the session to end.
            process.send_signal(signal.SIGINT)
            process.wait(END_TIMEOUT_S)
        finally:
            process.kill()


def position_of(broker: RunningBroker, group: str) -> int:
    """Sum of the offsets that a group has committed."""
    return sum(group_offsets(broker.bootstrap_servers, group).values())


def program_for(block: CodeBlock, broker: RunningBroker, output: str) -> str:
    text = block.text
    for written, here in (
        ("127.0.0.1:9092", broker.bootstrap_servers),
        ('"page-views"', repr(output)),
        ('"reader"', repr(f"reader-{output}")),
    ):
        assert written in text
        text = text.replace(written, here)
    return text


def test_the_consumer_has_five_lines() -> None:
    (block,) = BLOCKS
    assert len([line for line in block.text.splitlines() if line.strip()]) == MAX_LINES


def test_the_consumer_of_five_lines_reads_each_record_once(
    broker: RunningBroker, output: str, tmp_path: Path
) -> None:
    (block,) = BLOCKS
    program, group = program_for(block, broker, output), f"reader-{output}"
    with Driver(broker.bootstrap_servers, output, output) as driver:
        driver.take_over()
        driver.commit(0, VALUES)
        with running(program, tmp_path / "first") as printed:
            eventually(lambda: len(printed()) == len(VALUES))
            eventually(lambda: position_of(broker, group) >= len(VALUES))
        driver.commit(1, VALUES)
        with running(program, tmp_path / "second") as printed:
            eventually(lambda: len(printed()) == len(VALUES))
            eventually(lambda: position_of(broker, group) > 2 * len(VALUES))
    wanted = sorted(f"{b'k'!r} {value!r}" for value in VALUES)
    assert sorted((tmp_path / "first").read_text().splitlines()) == wanted
    assert sorted((tmp_path / "second").read_text().splitlines()) == wanted


@dataclass(frozen=True)
class Shown:
    """A command and the lines that the README shows below it; `...` stands for anything."""

    words: list[str]
    lines: list[str]


def session() -> list[Shown]:
    """Our commands in the README's console blocks, in order, but for the broker's own."""
    shown: list[Shown] = []
    for line in "".join(b.text for b in README if b.language == "console").splitlines():
        if line.startswith("$ "):
            shown.append(Shown(shlex.split(line)[1:], []))
        else:
            shown[-1].lines.append(line)
    return [s for s in shown if s.words[0] == "onceflow" and s.words[1] != "dev"]


def renamed(text: str, name: str, clicks: str) -> str:
    """The broker is shared by all tests: names must be of this test alone."""
    return re.sub(r"(?<![/\w])clicks(?![.\w])", clicks, text.replace(NAMED_BY_README, name))


@pytest.mark.timeout(600)
def test_the_first_pipeline_prints_what_the_readme_shows(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path
) -> None:
    name = f"my-views-{uuid.uuid4().hex[:8]}"
    clicks = topic("clicks")
    here = {"ONCEFLOW_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    commands = session()
    assert [shown.words[1] for shown in commands] == [
        *("init", "produce", "validate", "run", "consume", "status", "ledger")
    ]
    for shown in commands:
        words = [renamed(word, name, clicks) for word in shown.words[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "onceflow.cli", *words],
            cwd=tmp_path,
            env=os.environ | QUICK | here,
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        printed = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
        for line in shown.lines:
            wanted = ".*".join(map(re.escape, renamed(line, name, clicks).split("...")))
            assert any(re.fullmatch(wanted, found) for found in printed), (line, printed)
        if words[0] == "init":
            file = tmp_path / name / "pipeline.yaml"
            file.write_text(file.read_text().replace("topics: [clicks]", f"topics: [{clicks}]"))
