"""The way of the README from HTTP through windows on Spark to PostgreSQL, run by its own text."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from onceflow.clock import SystemClock
from onceflow.devkit.dev_broker import temporary_broker
from tests.support.documents.markdown import ROOT, Document
from tests.support.eventually import eventually
from tests.support.outside.topics import find_topic
from tests.support.sites.postgres import Postgres, running_postgres

RUN_TIMEOUT_S = 180
MARK = "whole-way"
MOST_LINES = 40
EXAMPLE = ROOT / "examples" / "clicks-by-http"
CLICKS, LATER = (
    [json.loads(line) for line in (EXAMPLE / "data" / name).read_text().splitlines()]
    for name in ("clicks.jsonl", "later.jsonl")
)
EXPECTED = {("/", "12:00", 3), ("/cart", "12:01", 1)}


class Way:
    """The files and commands of the README, in a folder, on brokers of their own."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        blocks = [*Document(ROOT / "README.md").blocks()]
        self._bootstrap_servers = bootstrap_servers
        self._folder = folder
        yaml = [block for block in blocks if block.language == "yaml"]
        named = {f"{block.marks[0]}.yaml": block.text for block in yaml if block.marks}
        self.files = {"pipeline.yaml": yaml[0].text, **named}
        for name in ("gateway.yaml", "delivery.yaml"):
            assert (EXAMPLE / name).read_text() == self.files[name], "the README shows the example"
        for name, text in self.files.items():
            (folder / name).write_text(text)
        text = "".join(b.text for b in blocks if MARK in b.marks).replace("\\\n", "")
        self.commands = [shlex.split(line) for line in text.splitlines()]

    def command(self, *words: str) -> Sequence[str]:
        """The only command of the README that begins so."""
        [found] = [c for c in self.commands if c[: len(words)] == [*words]]
        return found

    @contextmanager
    def running(self, file: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
        """A process of its own, killed in the end; yields a look at its events."""
        command = [sys.executable, "-m", "onceflow.cli", *self.command("onceflow", "run", file)[1:]]
        environment = {**os.environ, "ONCEFLOW_BOOTSTRAP_SERVERS": self._bootstrap_servers}
        environment["ONCEFLOW_GATEWAY__PORT"] = "0"
        out = self._folder / f"{file}.out"
        with (
            out.open("wb") as told,
            (self._folder / f"{file}.err").open("wb") as errors,
            subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=told, stderr=errors
            ) as process,
        ):
            try:
                yield lambda: [json.loads(line) for line in out.read_text().splitlines()]
            finally:
                process.kill()

    def make_topic(self) -> None:
        command = self.command("onceflow", "produce")[1:]
        servers = ["--bootstrap-servers", self._bootstrap_servers]
        subprocess.run(
            [sys.executable, "-m", "onceflow.cli", *command, *servers],
            check=True,
            cwd=self._folder,
            timeout=RUN_TIMEOUT_S,
        )

    def post(self, port: int, clicks: Sequence[object], key: str) -> httpx.Response:
        """As `curl` in the README would, to another port and with this key."""
        _, url, *options = self.command("curl")
        pairs = dict(zip(options[::2], options[1::2], strict=True))
        assert pairs["--data-binary"] == "@clicks.jsonl"
        headers = [o.split(": ", 1) for o in options if ": " in o]
        given = dict(headers) | {"Idempotency-Key": key}
        body = "".join(json.dumps(click) + "\n" for click in clicks)
        return httpx.post(
            url.replace(":9466", f":{port}"), headers=given, content=body, timeout=RUN_TIMEOUT_S
        )


@pytest.fixture
def brokers() -> Iterator[str]:
    """Start brokers for this test alone: its topics have the names of the README."""
    with temporary_broker(SystemClock()) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


def test_clicks_come_by_http_and_are_counted_in_a_table_once(
    brokers: str, tmp_path: Path, server: Postgres
) -> None:
    way = Way(brokers, tmp_path)
    lines = sum(len(text.splitlines()) for text in way.files.values())
    assert lines + len(way.commands) <= MOST_LINES
    (tmp_path / "dsn").write_text(server.dsn)
    with psycopg.connect(server.dsn) as connection:
        connection.execute(
            "CREATE TABLE page_views (page text, window_start timestamptz, views bigint,"
            " PRIMARY KEY (page, window_start))"
        )

    def table() -> set[tuple[str, str, int]]:
        select = "SELECT page, to_char(window_start AT TIME ZONE 'UTC', 'HH24:MI'), views"
        with psycopg.connect(server.dsn) as connection:
            return {*connection.execute(f"{select} FROM page_views").fetchall()}

    def port_of(events: Callable[[], list[dict[str, Any]]]) -> int:
        found = eventually(
            lambda: [each["port"] for each in events() if "port" in each], timeout_s=RUN_TIMEOUT_S
        )
        return int(found[0])

    def posted(port: int, clicks: Sequence[object], key: str) -> object:
        answer = eventually(
            lambda: way.post(port, clicks, key),
            lambda answer: answer.status_code == 202,
            timeout_s=RUN_TIMEOUT_S,
        )
        return answer.json()

    way.make_topic()
    with ExitStack() as stack:
        stack.enter_context(way.running("pipeline.yaml"))
        with way.running("gateway.yaml") as events:
            port = port_of(events)
            first = posted(port, CLICKS, '"monday-1"')
        # It was killed; the answer may be lost, so the post is sent again.
        port = port_of(stack.enter_context(way.running("gateway.yaml")))
        assert posted(port, CLICKS, '"monday-1"') == first
        eventually(lambda: find_topic(brokers, "page-views"), timeout_s=RUN_TIMEOUT_S)
        with way.running("delivery.yaml"):
            posted(port, LATER, '"monday-2"')
            eventually(table, lambda rows: rows == EXPECTED, timeout_s=RUN_TIMEOUT_S)
        stack.enter_context(way.running("delivery.yaml"))
        assert table() == EXPECTED
