"""The page and the API of deliveries, enrichments and gateways, over real ones in a real Chromium.

The page is the same as for pipelines; these tests are about what it shows of each kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.control.showing import MASK
from onceflow.control.tokens import Role, line_of, new_token
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.service import Service, started
from tests.support.eventually import eventually
from tests.support.outside.topics import create_topic, ordered_producer
from tests.support.sites.browser import PHONE, enter, grave_findings
from tests.support.sites.receiver import ALWAYS, Receiver, Rule, running_receiver

CARRIAGE = """\
from:
  topics: [TOPIC]
  schema: "n BIGINT NOT NULL, page STRING"
  foreign: deliver
  takeover_after: 6 seconds
batch: {max_records: 40, max_delay: 50 ms}
retry: {delay: 200 ms, max_delay: 2 s}
dead_letter: {topic: TOPIC-dead}
"""
DELIVERY = (
    """\
apiVersion: onceflow/v1
kind: delivery
name: views-to-shop
to: {http: {url: "URL?key=a-secret", headers: {X-Shop: a-secret}, idempotency: {lifetime: 1 hour}}}
"""
    + CARRIAGE
)
ENRICHMENT = """\
apiVersion: onceflow/v1
kind: enrichment
name: views-with-prices
ask: {http: {url: "URL/{n}?key=a-secret", timeout: 1 second}}
answer: {as: answer, schema: "serial BIGINT NOT NULL"}
to: {topic: TOPIC-out, create: true}
""" + CARRIAGE.replace("  foreign: deliver\n", "")
GATEWAY = """\
apiVersion: onceflow/v1
kind: gateway
name: shop-door
topics: {TOPIC: {schema: "n BIGINT NOT NULL, page STRING", key: page}}
takeover_after: 6 seconds
"""
RECORDS = 60
WELL = Rule(times=ALWAYS, headers={"Content-Type": "application/json"}, body='{"serial": $number}')


@dataclass
class Site:
    """A service of one file."""

    kind: str
    name: str
    topic: str
    file: Path
    broker: RunningBroker
    service: Service
    tokens: dict[Role, str]
    shop: Receiver

    def port_of(self, what: str) -> int:
        def found() -> int:
            told = self.service.of_kind("listening")
            return next((int(each["port"]) for each in told if each.get("what") == what), 0)

        return eventually(found, timeout_s=60)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port_of('control')}"

    @property
    def path(self) -> str:
        return f"{self.kind}/{self.name}"

    def ask(self, path: str = "", *, method: str = "GET", role: Role = Role.READ) -> Any:
        where = f"{self.address}/v1/{path if path[:1].isalpha() else self.path + path}"
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.request(method, where, headers=headers, timeout=60)

    def produce(self, *values: bytes) -> None:
        producer = ordered_producer(self.broker.bootstrap_servers)
        for value in values:
            producer.produce(self.topic, value, key=b"k")
        assert producer.flush(30) == 0

    def post(self, token: str = "") -> int:
        """Post a record; return the status of the answer."""
        self.service.wait_for("running")
        port = self.service.of_kind("running")[-1]["port"]
        return httpx.post(
            f"http://127.0.0.1:{port}/v1/{self.topic}",
            json={"n": 1, "page": "/a"},
            headers={"Authorization": f"Bearer {token or self.tokens[Role.WRITE]}"},
            timeout=60,
        ).status_code


@pytest.fixture(scope="module")
def shop() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        receiver.obey(WELL)
        yield receiver


@pytest.fixture(scope="module")
def serve(
    broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory, shop: Receiver
) -> Iterator[Callable[[str, str], Site]]:
    """Serves a file of a kind, once; all end with the module."""
    sites: dict[str, Site] = {}
    with ExitStack() as stack:

        def site_of(kind: str, text: str) -> Site:
            if kind in sites:
                return sites[kind]
            folder = tmp_path_factory.mktemp(kind)
            topic, name = f"page-of-{kind}", re.findall("name: (.*)", text)[0]
            create_topic(broker.bootstrap_servers, topic, 2)
            file = folder / f"{name}.yaml"
            file.write_text(text.replace("TOPIC", topic).replace("URL", shop.url))
            tokens = {role: new_token() for role in Role}
            lines = [line_of(token, role, f"who-may-{role}") for role, token in tokens.items()]
            (folder / "tokens").write_text("\n".join(lines))
            control = {"port": 0, "tokens_file": str(folder / "tokens")}
            control["shown_columns"] = [f"{name}.page"]
            environment = {
                "ONCEFLOW_CONTROL": json.dumps(control),
                "ONCEFLOW_GATEWAY__PORT": "0",
                "ONCEFLOW_GATEWAY__TOKENS_FILE": str(folder / "tokens"),
            }
            service = stack.enter_context(
                started(
                    folder / "serve",
                    file,
                    broker.bootstrap_servers,
                    command="serve",
                    environment=environment,
                )
            )
            sites[kind] = Site(kind, name, topic, file, broker, service, tokens, shop)
            return sites[kind]

        yield site_of


def records(count: int) -> list[bytes]:
    return [json.dumps({"n": n, "page": f"/{n}"}).encode() for n in range(count)]


@pytest.fixture(scope="module")
def delivery(serve: Callable[[str, str], Site]) -> Site:
    site = serve("deliveries", DELIVERY)
    site.produce(*records(RECORDS), b"no json")
    return site


@pytest.fixture(scope="module")
def enrichment(serve: Callable[[str, str], Site]) -> Site:
    return serve("enrichments", ENRICHMENT)


@pytest.fixture(scope="module")
def gateway(serve: Callable[[str, str], Site]) -> Site:
    site = serve("gateways", GATEWAY)
    assert site.post() == 202
    assert site.post("wrong") == 401
    return site


SITES = ("delivery", "enrichment", "gateway")


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("site", SITES, indirect=True)
def test_each_kind_has_an_overview_and_a_page_that_everybody_can_use(
    site: Site, page: Page
) -> None:
    enter(page, site.address, site.tokens[Role.READ])
    expect(page.get_by_role("heading", name=site.kind.capitalize())).to_be_visible()
    row = page.get_by_role("listitem").filter(has_text=site.name)
    expect(row.get_by_text("running", exact=True)).to_be_visible()
    expect(row).to_contain_text("exactly once")
    assert page.get_by_role("button").count() == 0
    assert grave_findings(page) == []
    page.get_by_role("link", name=site.name).click()
    expect(page.get_by_role("heading", name=site.name)).to_be_visible()
    expect(page.locator(".way")).to_contain_text(site.topic)
    expect(page.locator(".plot canvas")).to_have_count(5)
    expect(page.locator(".marks li").last).to_contain_text("started")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert grave_findings(page) == []
    page.set_viewport_size(PHONE)
    eventually(lambda: page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"])
    assert "a-secret" not in page.content()


@pytest.mark.parametrize("site", SITES, indirect=True)
def test_each_kind_is_stopped_and_started_on_the_page(site: Site, page: Page) -> None:
    enter(page, site.address, site.tokens[Role.WRITE])
    page.goto(f"{site.address}/{site.path}")
    for order, seen in (("Stop", "stopped"), ("Start", "running")):
        page.get_by_role("button", name=order, exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name=order).click()
        expect(page.locator("#order")).to_contain_text(seen)
        expect(page.locator("h1 .state")).to_have_text(seen)


@pytest.mark.parametrize("site", SITES, indirect=True)
def test_the_api_of_each_kind_tells_the_same_to_those_who_may(site: Site) -> None:
    eventually(lambda: site.ask().json()["observed"] == "running", timeout_s=60)
    assert [each["name"] for each in site.ask(site.kind).json()] == [site.name]
    told = site.ask().json()
    assert (told["name"], told["desired"]) == (site.name, "running")
    assert told["seen"]["guarantee"].startswith("exactly once")
    assert site.ask("/history").json()["marks"]
    assert "causes" in site.ask("/why-stuck").json()
    assert site.ask("/validate", method="POST", role=Role.WRITE).json()["is_valid"] is True
    for order in ("start", "stop", "restart", "validate"):
        assert site.ask(f"/{order}", method="POST").status_code == 403
    written = {each["name"]: each["value"] for each in site.ask("/configuration").json()}
    assert written["name"] == site.name
    assert "a-secret" not in str(written)
    assert MASK in str(written) or site.kind == "gateways"


def figure(page: Page, title: str) -> Any:
    return page.locator("#figures dl div").filter(has_text=title).locator("dd").first


def test_a_delivery_shows_where_it_stands_and_what_it_waits_for(delivery: Site, page: Page) -> None:
    enter(page, delivery.address, delivery.tokens[Role.READ])
    page.goto(f"{delivery.address}/{delivery.path}")
    places = page.get_by_role("region", name="Input").locator("tbody tr")
    expect(places).to_have_count(2)
    letters = page.get_by_role("region", name="Dead letters").locator("tbody tr")
    expect(letters.first).to_contain_text("undecodable")
    expect(figure(page, "Waits in the topics")).to_have_text("0")
    delivery.shop.obey(Rule(times=ALWAYS, status=503))
    try:
        delivery.produce(*records(1))
        expect(page.locator("#error")).to_contain_text("503")
        expect(page.locator("#error")).to_contain_text("next try at")
        expect(page.locator(".marks li").first).to_contain_text("waiting")
        waiting = eventually(lambda: delivery.ask().json()["seen"]["run"]["waiting"])
        assert waiting["failures"] >= 1
        assert "503" in waiting["reason"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z?", waiting["next_try"])
        page.goto(delivery.address)
        row = page.get_by_role("listitem").filter(has_text=delivery.name)
        expect(row).to_contain_text("next try at")
    finally:
        delivery.shop.obey(WELL)
    page.goto(f"{delivery.address}/{delivery.path}")
    expect(page.locator(".marks li").first).to_contain_text("resumed")
    expect(page.locator("#error")).to_be_empty()
    assert "no json" not in page.content()


def test_dead_letters_of_a_delivery_are_sent_again(delivery: Site, page: Page) -> None:
    enter(page, delivery.address, delivery.tokens[Role.WRITE])
    page.goto(f"{delivery.address}/{delivery.path}")
    letters = page.get_by_role("region", name="Dead letters").locator("tbody tr")
    expect(letters).not_to_have_count(0)
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    # JSON is expected today, too.
    expect(page.locator("#order")).to_contain_text("0 records sent again, 1 letters kept")


def test_a_gateway_shows_its_slots_and_whom_it_refused(gateway: Site, page: Page) -> None:
    enter(page, gateway.address, gateway.tokens[Role.READ])
    page.goto(f"{gateway.address}/{gateway.path}")
    slots = page.get_by_role("region", name="Slots").locator("tbody tr")
    expect(slots).to_have_count(2)
    expect(slots.first).to_contain_text("ready")
    expect(page.locator("#findings")).to_contain_text("answered 401")
    chart = page.get_by_role("group", name="Posts per second")
    expect(chart).to_have_attribute("aria-label", re.compile("taken .*refused .*failed"))
    causes = [each["cause"] for each in gateway.ask("/why-stuck").json()["causes"]]
    assert causes == ["posts refused"]
    # The command asks the instance itself.
    command = ["why-stuck", str(gateway.file), "--output", "json"]
    command += ["--bootstrap-servers", gateway.broker.bootstrap_servers]
    done = CliRunner().invoke(build_app(), command)
    assert (done.exit_code, json.loads(done.output)["causes"][0]["cause"]) == (1, causes[0])
