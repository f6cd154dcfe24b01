"""A service with one pipeline that is made of nothing, and callers of its control API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from onceflow.config import read_settings
from onceflow.control.access import Gate
from onceflow.control.api import control_app
from onceflow.control.pipelines import PipelineViews
from onceflow.control.tokens import Role, Tokens, line_of, new_token
from onceflow.serve.files import find_files
from onceflow.serve.http_server import Endpoint, answering
from onceflow.serving import find_entries
from tests.support.clock import ManualClock
from tests.support.fakes.runs import Maker
from tests.support.fakes.unreachable import HERE, fake_service, living_members
from tests.support.pipelines import pipeline_text

SECRET = "marker-of-a-password"


@dataclass
class Site:
    """The service."""

    folder: Path
    reader: str = field(default_factory=new_token)
    writer: str = field(default_factory=new_token)
    clock: ManualClock = field(default_factory=ManualClock)
    maker: Maker = field(default_factory=Maker)
    audited: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        tokens = [line_of(self.reader, Role.READ, "ann"), line_of(self.writer, Role.WRITE, "bob")]
        self.tokens = self.folder / "tokens"
        self.tokens.write_text("# who may come in\n\n" + "\n".join(tokens))
        (self.folder / "views.yaml").write_text(pipeline_text())
        password = self.folder / "password"
        password.write_text(SECRET)
        settings = self.folder / "onceflow.yaml"
        settings.write_text(
            f"sasl:\n  mechanism: PLAIN\n  username: us\n  password_file: {password}\ntls: {{}}\n"
            f"client: {{client.rack: a, socket.keepalive.enable: true}}\n"
            f"spark:\n  conf:\n    spark.speculation: false\n"
            f"    spark.hadoop.fs.s3a.access.key: {SECRET}-1\n"
            f"    spark.hadoop.fs.s3a.secret.key: {SECRET}-2\n"
            f"    spark.sql.catalog.lake.password: {SECRET}-3\n"
            f"    spark.driver.extraJavaOptions: -Dpassword={SECRET}-4\n"
        )
        _, values = read_settings({"ONCEFLOW_SPARK__DRIVER_MEMORY": "3g"}, {}, settings)
        entries = find_entries(find_files([self.folder]))
        self.service = fake_service(entries, self.clock, {"views": self.maker}, values)
        self.member = self.service.fleet.members["views"]
        self.gate = Gate(Tokens(self.tokens), self.clock, self.audit)

    def audit(self, what: str, **facts: object) -> None:
        self.audited.append({"what": what, **facts})


@dataclass
class Callers:
    """Clients of one site."""

    address: str

    def by(self, token: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.address, headers=headers, timeout=30)


@contextmanager
def living(site: Site) -> Iterator[Site]:
    """Its pipeline lives inside the block."""
    with living_members([site.member]):
        yield site


@contextmanager
def answered(site: Site, *, trusted_proxies: tuple[str, ...] = ()) -> Iterator[Callers]:
    """Its API is answered inside the block."""
    endpoint = Endpoint(HERE, 0, trusted_proxies=trusted_proxies)
    with answering(control_app(PipelineViews(site.service), site.gate), endpoint) as port:
        yield Callers(f"http://{HERE}:{port}")
