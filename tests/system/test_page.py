"""The status page in a real Chromium, over a pipeline that runs on a real broker."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Page, Route, expect

from onceflow.control.tokens import Role, line_of, new_token
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.service import Service, started
from tests.support.eventually import eventually
from tests.support.jobs.views import ViewsJob
from tests.support.outside.topics import ordered_producer
from tests.support.sites.browser import HERE, PHONE, enter, grave_findings
from tests.support.sites.invented import InventedSite, invented_site

SCREENSHOTS = Path(__file__).parents[2] / "docs" / "images"
REWRITE = "ONCEFLOW_TEST_REWRITE_SCREENSHOTS"


class Site:
    """A service with two pipelines, one of which is refused, and its page."""

    def __init__(self, service: Service, job: ViewsJob, tokens: dict[Role, str]) -> None:
        self.service, self.job, self.tokens = service, job, tokens
        service.wait_for("listening", 2)
        port = next(e["port"] for e in service.of_kind("listening") if e["what"] == "control")
        self.address = f"http://{HERE}:{port}"

    def sign_in(self, page: Page, role: Role) -> None:
        enter(page, self.address, self.tokens[role])


@pytest.fixture(scope="module")
def site(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("page")
    job = ViewsJob(broker.bootstrap_servers, folder, name="page-views")
    job.create_input()
    job.produce(Random(1), records=3_000, seconds=300)
    (folder / "pipelines").mkdir()
    extra = f"dead_letter: {{topic: {job.name}-dead}}\n"
    job.write_file(batch=300, extra=extra).rename(folder / "pipelines" / "page-views.yaml")
    refused = "apiVersion: onceflow/v1\nname: clicks\nquery: <b>SELECT</b>\n"
    (folder / "pipelines" / "clicks.yaml").write_text(refused)
    tokens = {role: new_token() for role in Role}
    lines = [line_of(token, role, f"user-who-may-{role}") for role, token in tokens.items()]
    (folder / "tokens").write_text("\n".join(lines))
    control = {
        "port": 0,
        "tokens_file": str(folder / "tokens"),
        "shown_columns": [f"{job.name}.page"],
    }
    with started(
        folder / "serve",
        folder / "pipelines",
        broker.bootstrap_servers,
        command="serve",
        environment={"ONCEFLOW_CONTROL": json.dumps(control)},
    ) as service:
        service.wait_for_batches(3, job.name)
        yield Site(service, job, tokens)


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InventedSite]:
    with invented_site(tmp_path_factory.mktemp("invented")) as made:
        yield made


def keep_screenshot(page: Page, name: str) -> None:
    """For the documents, if asked for; else only that one can be made."""
    picture = page.screenshot()
    assert len(picture) > 10_000
    if os.environ.get(REWRITE):
        SCREENSHOTS.mkdir(exist_ok=True)
        (SCREENSHOTS / f"{name}.png").write_bytes(picture)


def scheme_of(page: Page) -> str:
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    return "dark" if is_dark else "light"


def test_the_overview_shows_all_and_what_is_wrong(site: Site, page: Page) -> None:
    site.sign_in(page, Role.READ)
    row = page.get_by_role("listitem").filter(has_text="page-views")
    expect(row.get_by_text("running", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="clicks")).to_be_visible()
    expect(page.locator("pre.error")).to_contain_text("sources")
    assert page.locator("main").inner_text().count("`sources` is missing") == 1
    assert page.locator("b").count() == 0
    assert page.get_by_role("button").count() == 0


def test_a_pipeline_shows_itself_and_stays_current(site: Site, page: Page) -> None:
    site.sign_in(page, Role.READ)
    page.get_by_role("link", name="page-views").click()
    expect(page.get_by_role("heading", name="page-views")).to_be_visible()
    expect(page.locator(".way")).to_contain_text(site.job.input_topic)
    expect(page.locator(".way")).to_contain_text("rows of state")
    # After the last record, a batch without any lets time pass.
    expect(page.locator(".way .from")).to_contain_text(re.compile(r"clicks: read \d+, 0 wait"))
    expect(page.locator("svg.timeline rect")).not_to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.locator(".plot canvas")).to_have_count(6)
    figure = page.locator("dl div").filter(has_text="Last batch").locator("dd")
    before = int(figure.inner_text())
    site.job.produce(Random(2), records=300, seconds=30)
    eventually(lambda: int(figure.inner_text()) > before, timeout_s=60)
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator(".plot canvas")).to_have_count(6)
    event = page.get_by_role("group", name="Event time")
    expect(event).to_have_attribute("aria-label", re.compile("held by clicks"))
    for name, told in (("Time of a batch", "compute, write, commit"), ("State", "rows")):
        chart = page.get_by_role("group", name=name)
        expect(chart).to_have_attribute("aria-label", re.compile(rf"{told} [1-9]"))


def test_it_can_be_used_by_keyboard_alone(site: Site, page: Page) -> None:
    site.sign_in(page, Role.WRITE)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "page-views":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/pipelines/page-views")
    orders = len(orders_of(site))
    page.get_by_role("button", name="Stop", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Its running batch commits first.")
    page.keyboard.press("Escape")
    for order, seen in (("Stop", "stopped"), ("Start", "running")):
        page.get_by_role("button", name=order, exact=True).focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#order")).to_contain_text(seen)
        expect(page.locator("h1 .state")).to_have_text(seen)
    marks = page.locator(".marks li")
    expect(marks.first).to_contain_text("started")
    expect(marks.nth(1)).to_contain_text("stopped")
    given = orders_of(site)[orders:]
    assert [str(event["path"]).rsplit("/", 1)[-1] for event in given] == ["stop", "start"]
    assert {event["who"] for event in given} == {"user-who-may-write"}


def orders_of(site: Site) -> list[dict[str, object]]:
    return [event for event in site.service.of_kind("audit") if event["what"] == "order"]


def test_dead_letters_are_shown_with_their_reason_and_sent_again(site: Site, page: Page) -> None:
    site.sign_in(page, Role.WRITE)
    page.goto(f"{site.address}/pipelines/page-views")
    letters = page.get_by_role("region", name="Dead letters").locator("tbody tr")
    before = letters.count()
    producer = ordered_producer(site.job.bootstrap_servers)
    producer.produce(site.job.input_topic, b"no json", partition=0)
    assert producer.flush(30) == 0
    expect(letters).to_have_count(before + 1)
    expect(letters.first).to_contain_text("undecodable")
    expect(letters.first).to_contain_text("not JSON: Expecting value")
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    # Those of the same test in the other colours were sent, and rejected again.
    expect(page.locator("#order")).to_contain_text(re.compile("[12] records sent again, 0 letters"))
    eventually(lambda: letters.count() > before + 1, timeout_s=60)


def test_newest_records_show_what_the_settings_allow(site: Site, page: Page) -> None:
    site.sign_in(page, Role.READ)
    page.goto(f"{site.address}/pipelines/page-views")
    page.get_by_text("Look into the topics").press("Enter")
    for side in ("input", "output"):
        rows = page.get_by_role("region", name=f"Newest {side}").locator("tbody tr")
        expect(rows).to_have_count(20)
        expect(rows.filter(has_text="page: /").first).to_contain_text("columns not shown")
    shown = page.locator("#records").inner_text()
    assert not re.search(r"\b(ms|total_ms|views): ", shown)
    page.wait_for_timeout(3_000)
    expect(page.locator("#records")).to_have_attribute("open", "")
    assert grave_findings(page) == []


def test_it_says_when_it_is_not_current(site: Site, page: Page) -> None:
    site.sign_in(page, Role.READ)
    page.context.set_offline(True)
    expect(page.locator("#live")).to_contain_text("not live")
    page.context.set_offline(False)
    expect(page.locator("#live")).to_have_text("live")


def test_the_last_hour_is_drawn_with_what_happened(invented: InventedSite, page: Page) -> None:
    enter(page, invented.address, invented.tokens[Role.WRITE])
    expect(page.locator("svg.spark")).to_have_count(2)
    page.set_viewport_size({"width": 1280, "height": 620})
    keep_screenshot(page, f"overview-{scheme_of(page)}")
    page.get_by_role("link", name="page-views").click()
    charts = page.locator("#charts")
    expect(charts.locator("canvas")).to_have_count(6)
    rate = charts.get_by_role("group", name="Records per second")
    expect(rate).to_have_attribute("aria-label", re.compile(r"read 1,\d\d\d\S*/s, written \d+"))
    expect(charts.get_by_role("group", name="Event time")).to_have_attribute(
        "aria-label", re.compile("held by clicks")
    )
    marks = [text.split()[0] for text in page.locator(".marks li").all_inner_texts()]
    assert marks == ["replayed", "started", "failed", "took"]
    page.set_viewport_size({"width": 1280, "height": 1640})
    keep_screenshot(page, f"pipeline-{scheme_of(page)}")


def test_time_can_be_walked_through_by_keyboard(invented: InventedSite, page: Page) -> None:
    enter(page, invented.address, invented.tokens[Role.READ])
    page.goto(f"{invented.address}/pipelines/page-views")
    lag = page.get_by_role("group", name="Lag")
    expect(lag.locator("canvas")).to_be_visible()
    lag.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    # 5 seconds for each, back from the beginning of the newest interval, in the browser's zone.
    expect(page.locator("#said")).to_contain_text(re.compile(r"^15:29:40: waiting records \d+"))


def test_moments_that_no_calendar_has_break_nothing(invented: InventedSite, page: Page) -> None:
    """Spark's calendar is longer than the browser's, and records carry any moment."""
    far_ms = 9_000_000_000_000_000
    record = {"topic": "t", "partition": 0, "offset": 1, "timestamp_ms": far_ms, "key": None}
    record |= {"value_bytes": 1, "columns": {}, "columns_not_shown": 0}

    def shift(route: Route) -> None:
        history = route.fetch().json()
        history["newest_event_ms"] = [far_ms for _ in history["at_ms"]]
        route.fulfill(json=history)

    page.route("**/history", shift)
    page.route("**/records?*", lambda route: route.fulfill(json=[record]))
    enter(page, invented.address, invented.tokens[Role.READ])
    page.goto(f"{invented.address}/pipelines/page-views")
    chart = page.get_by_role("group", name="State")
    expect(chart).to_have_attribute("aria-label", re.compile("rows"))
    page.get_by_text("Look into the topics").click()
    expect(page.get_by_role("region", name="Newest output").locator("tbody tr")).to_have_count(1)


def test_moments_are_those_of_the_browsers_zone(invented: InventedSite, page: Page) -> None:
    enter(page, invented.address, invented.tokens[Role.READ])
    page.goto(f"{invented.address}/pipelines/page-views")
    moment = page.locator("dl div").filter(has_text="Event watermark").locator("time")
    expect(moment).to_have_text("1 Mar 2026, 15:29:44")
    expect(moment).to_have_attribute("title", "2026-03-01 09:59:44 UTC")


def test_the_service_is_drained_by_whoever_confirms_it(invented: InventedSite, page: Page) -> None:
    enter(page, invented.address, invented.tokens[Role.WRITE])
    for answer, said in (("Cancel", ""), ("Drain the service", "all end")):
        page.get_by_role("button", name="Drain the service").click()
        page.get_by_role("dialog").get_by_role("button", name=answer).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.locator("#order")).to_contain_text(said)


def test_a_question_that_was_left_orders_nothing(invented: InventedSite, page: Page) -> None:
    """Also when the next one is answered before the browser has drawn a frame."""
    orders: list[str] = []

    def carry_out(route: Route) -> None:
        orders.append(route.request.url)
        route.fulfill(json={"desired": "stopped", "observed": "stopped", "error": None})

    page.route("**/v1/pipelines/*/stop", carry_out)
    enter(page, invented.address, invented.tokens[Role.WRITE])
    page.goto(f"{invented.address}/pipelines/page-views")
    page.evaluate(
        """() => {
          const stop = document.querySelector("[data-order=stop]");
          const question = document.querySelector("dialog");
          stop.click();
          question.close();
          stop.click();
          question.querySelector("[value=yes]").click();
        }"""
    )
    expect(page.locator("#order")).to_contain_text("stopped")
    assert len(orders) == 1


@pytest.mark.parametrize("path", ["/", "/pipelines/page-views", "/pipelines/refunds"])
def test_everybody_can_use_it_also_on_a_phone(
    invented: InventedSite, page: Page, path: str
) -> None:
    page.goto(f"{invented.address}/sign-in")
    assert grave_findings(page) == []
    enter(page, invented.address, invented.tokens[Role.WRITE])
    page.goto(f"{invented.address}{path}")
    if path.endswith("views"):
        expect(page.locator("canvas")).to_have_count(6)
    assert grave_findings(page) == []
    page.get_by_role("button").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert grave_findings(page) == []
    page.keyboard.press("Escape")
    page.set_viewport_size(PHONE)
    expect(page.locator("main")).to_be_visible()
    eventually(lambda: page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"])
    assert grave_findings(page) == []
