"""`onceflow run` of a gateway file as processes, their clients, and what a sceptic reads back.

Clients and checks share no code with the gateway: `http.client`, and a plain consumer.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from onceflow.clock import SystemClock
from onceflow.crashpoints import ENVIRONMENT_VARIABLE, PROOF_VARIABLE
from tests.support.eventually import eventually
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic

START_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 60
PARTITIONS = 2
ONE, LINES = "application/json", "application/x-ndjson"
FILE = """\
apiVersion: onceflow/v1
kind: gateway
name: {name}
topics:
  {topic}: {{schema: "n BIGINT NOT NULL, page STRING", key: page}}
remember: {{slots: 2}}
takeover_after: 3 seconds
{more}
"""


@dataclass(frozen=True)
class Sent:
    """A post, to be sent as often as it takes."""

    key: str | None
    numbers: tuple[int, ...]

    @property
    def lines(self) -> Sequence[bytes]:
        return [json.dumps({"n": n, "page": f"p{n % 7}"}).encode() for n in self.numbers]


@dataclass(frozen=True)
class Got:
    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass
class Running:
    """One instance."""

    process: subprocess.Popen[bytes]
    output: Path
    errors: Path
    topic: str

    def events(self, name: str = "") -> list[dict[str, Any]]:
        found = []
        for line in self.output.read_text().splitlines():
            with suppress(ValueError):  # the last one may be half written
                found.append(json.loads(line))
        return [each for each in found if name in {"", each["event"]}]

    @cached_property
    def port(self) -> int:
        def found() -> int:
            is_dead = self.process.poll() is not None
            port = next((int(each["port"]) for each in self.events("running")), 0)
            assert port or not is_dead, self.errors.read_text()
            return port

        return eventually(found, timeout_s=START_TIMEOUT_S)

    def send(self, sent: Sent, headers: Mapping[str, str] | None = None) -> Got | None:
        """One try; None if there is no answer."""
        given = {"Content-Type": LINES, **(headers or {})}
        if sent.key is not None:
            given["Idempotency-Key"] = sent.key
        return self.ask("POST", f"/v1/{self.topic}", b"\n".join(sent.lines), given)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Got | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Got(response.status, dict(response.headers), json.loads(response.read()))
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            found = self.ask("GET", "/readyz")
            return found is not None and found.status == 200

        eventually(is_ready, timeout_s=START_TIMEOUT_S)


@dataclass
class Gateways:
    """A topic, a gateway file, and instances of it.

    Args:
        kafka: address of the brokers, for instances.
        behind: the same for the sceptic, if instances see them through a proxy.
    """

    kafka: str
    folder: Path
    topic: str
    behind: str = ""
    answered: dict[Sent, Got] = field(default_factory=dict)
    unanswered: set[Sent] = field(default_factory=set)
    _count: int = 0
    _rounds: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return "g-" + self.topic[-20:].strip("-_").replace("_", "-")

    @property
    def proof(self) -> Path:
        return self.folder / "proof"

    @property
    def file(self) -> Path:
        return self.folder / "gateway.yaml"

    def set_up(self, more: str = "", config: Mapping[str, str] | None = None) -> None:
        create_topic(self.behind or self.kafka, self.topic, PARTITIONS, config)
        self.file.write_text(FILE.format(name=self.name, topic=self.topic, more=more))

    @contextmanager
    def running(
        self, crash: str = "", settings: Mapping[str, str] | None = None, *, is_served: bool = False
    ) -> Iterator[Running]:
        """`onceflow run`, or `serve` of the folder, ended for good when the block is left."""
        self._count += 1
        environment = {
            **os.environ,
            PROOF_VARIABLE: str(self.proof),
            "ONCEFLOW_GATEWAY__PORT": "0",
            **(settings or {}),
        }
        if crash:
            environment[ENVIRONMENT_VARIABLE] = crash
        what = ["serve", str(self.folder)] if is_served else ["run", str(self.file)]
        command = [sys.executable, "-m", "onceflow.cli", *what, "--bootstrap-servers", self.kafka]
        output, errors = (self.folder / f"{self._count}.{end}" for end in ("out", "err"))
        with (
            output.open("wb") as out,
            errors.open("wb") as err,
            subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=out, stderr=err
            ) as process,
        ):
            try:
                yield Running(process, output, errors, self.topic)
            finally:
                process.send_signal(signal.SIGCONT)
                process.kill()

    def send_all(self, at: Sequence[Running], posts: Sequence[Sent], *, threads: int = 8) -> None:
        """Send each once, to one instance after another; note what was answered with 202."""
        self._rounds += 1
        numbered = [*enumerate(posts, start=self._rounds)]

        def send(number: int, sent: Sent) -> None:
            got = at[number % len(at)].send(sent)
            with self._lock:
                self._note(sent, got)

        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(send, *each) for each in numbered]:
                future.result()

    def send_until_answered(
        self, at: Sequence[Running], posts: Sequence[Sent], *, timeout_s: float = 90
    ) -> None:
        """Send each again until it is answered with 202, as a patient client does."""
        patience = SystemClock().within(timeout_s)
        left = [*posts]
        while left:
            patience.check("posts are not answered", subject=f"{len(left)} of {len(posts)}")
            self.send_all(at, left)
            left = [sent for sent in left if sent not in self.answered]
            if left:
                threading.Event().wait(0.1)

    def _note(self, sent: Sent, got: Got | None) -> None:
        if got is None or got.status != 202:
            assert got is None or got.status in {429, 503}, got
            if sent not in self.answered:
                self.unanswered.add(sent)
            return
        self.unanswered.discard(sent)
        if (first := self.answered.get(sent)) is not None and sent.key is not None:
            assert got.body == first.body, "a repeat gets the same answer"
        self.answered.setdefault(sent, got)

    def check(self) -> None:
        """Each record of each post is there exactly once, where the answer said; and no other."""
        assert not self.unanswered
        found = read_topic(self.behind or self.kafka, self.topic)
        counts = Counter(record.row["n"] for record in found)
        wanted = Counter(n for sent in self.answered for n in sent.numbers)
        assert {n: counts[n] for n in counts | wanted if counts[n] != wanted[n]} == {}
        places = {(record.partition, record.offset): record.row["n"] for record in found}
        for sent, got in self.answered.items():
            told = [
                places[run["partition"], run["offset"] + n]
                for run in got.body["written"]
                for n in range(run["count"])
            ]
            assert Counter(told) == Counter(sent.numbers)


def posts(first: int, count: int, prefix: str = "k") -> list[Sent]:
    """So many posts with keys; every fifth has three records."""
    found, n = [], first
    for number in range(count):
        size = 3 if number % 5 == 0 else 1
        found.append(Sent(f"{prefix}-{first}-{number}", tuple(range(n, n + size))))
        n += size
    return found
