"""A receiver of HTTP requests that fails as it is asked to, as a child of the tests.

It keeps two files in a folder: `rules.json`, which a test writes, and `log`, with a line for each
request that arrived, was stored, or was answered. Both outlive it, so that it can be killed and
started again: it remembers what it stored, and under which key.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from string import Template
from typing import IO, Any

from aiohttp import web

from onceflow.clock import SystemClock
from onceflow.devkit.broker_config import HOST
from onceflow.devkit.broker_start import free_ports
from tests.support.brokers.supervisor import AttachedProcesses, Spec
from tests.support.eventually import eventually
from tests.support.sites.certificates import KeyPair

ALWAYS = 1_000_000
PROBLEM = "application/problem+json"
MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Rule:
    """How the next requests that fit are treated.

    Args:
        times: to how many requests.
        contains: text that the body must hold.
        path: text that the path and the query must hold.
        methods: of the requests.
        status: answered instead of storing; 0: stored, and answered by 200.
        delay_s: before it is stored and answered. The key is taken already then.
        cut: `before` or `after` it is stored, the connection ends without an answer.
        is_lost: acknowledged, but not stored.
        body: of the answer, in which `$number` and `$path` stand for those of the request.
        body_bytes: length of a meaningless answer.
    """

    times: int = 1
    contains: str = ""
    path: str = ""
    methods: Sequence[str] = ("POST", "PUT")
    status: int = 0
    delay_s: float = 0.0
    cut: str = ""
    is_lost: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    body_bytes: int = 0


@dataclass(frozen=True)
class Seen:
    """A request that arrived."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")


class _Server:
    """The child's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = SystemClock()
        self._rules_as_of = 0
        self._rules: list[tuple[Rule, int]] = []
        self._lifetime_s: float | None = None
        self._running: set[str] = set()
        self._stored: dict[str, tuple[str, int]] = {}
        log = folder / "log"
        self._count = 0
        for line in log.read_text().splitlines() if log.exists() else ():
            event = json.loads(line)
            self._count = max(self._count, event["number"])
            if event["event"] == "stored" and event["key"]:
                self._stored[event["key"]] = event["digest"], event["unix_ms"]
        self._log: IO[str] = log.open("a", buffering=1)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self._count += 1
        number = self._count
        key = request.headers.get("Idempotency-Key", "")
        self._note(
            number,
            "arrived",
            method=request.method,
            path=request.path_qs,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body.decode("latin-1"),
        )
        rule = self._rule_for(request, body)
        if rule.cut == "before":
            return self._cut(request)
        answer = self._known(key, body)
        if answer is None:
            self._running.add(key)
            try:
                await asyncio.sleep(rule.delay_s)
                answer = self._carried_out(rule, number, key, request, body)
            finally:
                self._running.discard(key)
        if rule.cut == "after":
            return self._cut(request)
        self._note(number, "answered", status=answer.status)
        return answer

    def _known(self, key: str, body: bytes) -> web.Response | None:
        """Answer by what is known of a key, as the draft of the IETF says."""
        if self._lifetime_s is None or not key:
            return None
        if key in self._running:
            return web.Response(status=409)
        digest, unix_ms = self._stored.get(key, ("", 0))
        if not digest or self._clock.unix_ms() - unix_ms > 1000 * self._lifetime_s:
            return None
        if digest == hashlib.sha256(body).hexdigest():
            return web.Response()
        problem = {"type": "https://example.test/idempotency", "title": "Idempotency-Key is used"}
        return web.Response(status=422, text=json.dumps(problem), content_type=PROBLEM)

    def _carried_out(
        self, rule: Rule, number: int, key: str, request: web.Request, body: bytes
    ) -> web.Response:
        if not rule.status and not rule.is_lost and request.method in {"POST", "PUT"}:
            digest, unix_ms = hashlib.sha256(body).hexdigest(), self._clock.unix_ms()
            self._note(number, "stored", key=key, digest=digest, unix_ms=unix_ms)
            self._stored[key] = digest, unix_ms
        text = Template(rule.body).safe_substitute(number=number, path=request.path_qs)
        body = text.encode() or b"x" * rule.body_bytes
        return web.Response(status=rule.status or 200, headers=rule.headers, body=body)

    def _rule_for(self, request: web.Request, body: bytes) -> Rule:
        file = self._folder / "rules.json"
        with suppress(FileNotFoundError):
            if (as_of := file.stat().st_ino) != self._rules_as_of:
                given = json.loads(file.read_text())
                self._rules = [(Rule(**each), each["times"]) for each in given["rules"]]
                self._lifetime_s = given["lifetime_s"]
                self._rules_as_of = as_of
        for n, (rule, left) in enumerate(self._rules):
            is_meant = rule.contains.encode() in body and rule.path in request.path_qs
            if left and is_meant and request.method in rule.methods:
                self._rules[n] = rule, left - 1
                return rule
        return Rule()

    def _cut(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    def _note(self, number: int, event: str, **facts: Any) -> None:
        self._log.write(json.dumps({"number": number, "event": event, **facts}) + "\n")


@dataclass
class Receiver:
    """The test's side."""

    port: int
    scheme: str
    _folder: Path
    _processes: AttachedProcesses
    _written: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.port}/records"

    def obey(self, *rules: Rule, lifetime_s: float | None = None) -> None:
        """Replace the rules.

        Args:
            rules: the first that fits counts. Without any: store, and answer by 200.
            lifetime_s: how long keys are remembered; None: they are ignored.
        """
        self._written += 1
        file = self._folder / f"rules-{self._written}"
        given = {"rules": [asdict(rule) for rule in rules], "lifetime_s": lifetime_s}
        file.write_text(json.dumps(given))
        # Its inode is another one, because the file before it still exists.
        with suppress(FileNotFoundError):
            os.link(self._folder / "rules.json", self._folder / f"old-{self._written}")
        file.rename(self._folder / "rules.json")

    def events(self) -> list[dict[str, Any]]:
        """Everything that was logged, in order."""
        file = self._folder / "log"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def requests(self) -> list[Seen]:
        """Those that arrived, in order, but for probes."""
        return [each for each in self._arrived() if each.method in {"POST", "PUT"}]

    def questions(self) -> list[Seen]:
        """The requests by GET that arrived, in order."""
        return [each for each in self._arrived() if each.method == "GET"]

    def probes(self) -> list[Seen]:
        """The probes that arrived, in order."""
        return [each for each in self._arrived() if each.method not in {"POST", "PUT"}]

    def kill(self) -> None:
        self._processes.order("signal", 0, signal.SIGKILL)

    def freeze(self) -> None:
        self._processes.order("signal", 0, signal.SIGSTOP)

    def thaw(self) -> None:
        self._processes.order("signal", 0, signal.SIGCONT)

    def start(self) -> None:
        """Start it again, and wait until it can be reached."""
        self._processes.order("start", 0)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        eventually(self._answers, timeout_s=60)

    def _arrived(self) -> list[Seen]:
        return [
            Seen(e["number"], e["method"], e["path"], e["headers"], e["body"].encode("latin-1"))
            for e in self.events()
            if e["event"] == "arrived"
        ]

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=5).close()
        except OSError:
            return False
        return True


@contextmanager
def running_receiver(tls: KeyPair | None = None, clients: Path | None = None) -> Iterator[Receiver]:
    """A receiver that is gone when the block is left.

    Args:
        tls: its certificate; None: plain HTTP.
        clients: certificate of the authority that clients must have one of.
    """
    folder = Path(tempfile.mkdtemp(prefix="onceflow-receiver-"))
    try:
        [port] = free_ports(1)
        command = [sys.executable, "-m", "tests.support.sites.receiver", str(port), str(folder)]
        command += [str(tls.certificate), str(tls.key)] if tls else []
        command += [str(clients)] if clients else []
        processes = AttachedProcesses(Spec([command], [str(folder / "output")], [{}], str(folder)))
        processes.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        receiver = Receiver(port, "https" if tls else "http", folder, processes)
        receiver.wait_until_ready()
        yield receiver
    finally:
        processes.close()


def main() -> None:
    """Receive until the end: PORT FOLDER [CERTIFICATE KEY [AUTHORITY OF CLIENTS]]."""
    port, folder, *files = sys.argv[1:]
    tls = None
    if files:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(files[0], files[1])
    if tls is not None and files[2:]:
        tls.load_verify_locations(files[2])
        tls.verify_mode = ssl.CERT_REQUIRED
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_route("*", "/{any:.*}", _Server(Path(folder)).handle)
    web.run_app(app, host=HOST, port=int(port), ssl_context=tls, print=None, access_log=None)


if __name__ == "__main__":
    main()
