"""The status page in a real Chromium, over a pipeline that runs on a real broker."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from socket import gethostname

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from onceflow.control.tokens import Role, line_of, new_token
from tests.support.brokers import RunningBroker
from tests.support.eventually import eventually
from tests.support.service import Service, started
from tests.support.views_job import ViewsJob

HERE = "127.0.0.1"
SCREENSHOTS = Path(__file__).parents[2] / "docs" / "images"
REWRITE = "ONCEFLOW_TEST_REWRITE_SCREENSHOTS"
WAIT_MS = 60_000


_REPLACE = """([text, shown]) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    walker.currentNode.data = walker.currentNode.data.replaceAll(text, shown);
  }
}"""


class Site:
    """A service with two pipelines, one of which is refused, and its page."""

    def __init__(self, service: Service, job: ViewsJob, tokens: dict[Role, str]) -> None:
        self.service, self.job, self.tokens = service, job, tokens
        service.wait_for("listening", 2)
        port = next(e["port"] for e in service.of_kind("listening") if e["what"] == "control")
        self.address = f"http://{HERE}:{port}"

    def sign_in(self, page: Page, role: Role) -> None:
        page.goto(self.address)
        page.get_by_label("Token").fill(self.tokens[role])
        page.keyboard.press("Enter")
        page.wait_for_url(f"{self.address}/")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


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
    lines = [line_of(token, role, f"somebody-who-may-{role}") for role, token in tokens.items()]
    (folder / "tokens").write_text("\n".join(lines))
    control = {"port": 0, "tokens_file": str(folder / "tokens")}
    with started(
        folder / "serve",
        folder / "pipelines",
        broker.bootstrap_servers,
        command="serve",
        environment={"ONCEFLOW_CONTROL": json.dumps(control)},
    ) as service:
        service.wait_for_batches(3, job.name)
        yield Site(service, job, tokens)


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(
        color_scheme=request.param, viewport={"width": 1280, "height": 1100}
    )
    # Nothing outside may be needed.
    context.route(lambda url: HERE not in url and not url.startswith("data:"), _refuse)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on("pageerror", lambda error: pytest.fail(f"script failed: {error}"))
    yield page
    context.close()


def _refuse(route: object) -> None:
    raise AssertionError(f"the page asks for something outside: {route}")


def keep_screenshot(page: Page, name: str, site: Site) -> None:
    """For the documents, if asked for; else only that one can be made."""
    page.route("**/*", lambda route: route.abort())  # it must not renew itself meanwhile
    # The documents speak of no machine of ours.
    for text, shown in ((str(site.job.folder), "/etc/onceflow"), (gethostname(), "onceflow-0")):
        page.evaluate(_REPLACE, [text, shown])
        assert text not in page.content()
    picture = page.screenshot(full_page=True)
    page.unroute("**/*")
    assert len(picture) > 10_000
    if os.environ.get(REWRITE):
        SCREENSHOTS.mkdir(exist_ok=True)
        (SCREENSHOTS / f"{name}.png").write_bytes(picture)


def scheme_of(page: Page) -> str:
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    return "dark" if is_dark else "light"


def test_the_overview_shows_all_and_what_is_wrong(site: Site, page: Page) -> None:
    site.sign_in(page, Role.READ)
    row = page.get_by_role("row").filter(has_text="page-views")
    expect(row.get_by_text("running", exact=True)).to_be_visible()
    expect(page.get_by_text("clicks").first).to_be_visible()
    expect(page.locator("pre.error")).to_contain_text("sources")
    assert page.locator("b").count() == 0
    keep_screenshot(page, f"overview-{scheme_of(page)}", site)


def test_a_pipeline_shows_itself_and_stays_current(site: Site, page: Page) -> None:
    site.sign_in(page, Role.READ)
    page.get_by_role("link", name="page-views").click()
    expect(page.get_by_role("heading", name="page-views")).to_be_visible()
    expect(page.locator("svg.graph")).to_contain_text(site.job.input_topic[:20])
    expect(page.locator("svg.timeline rect")).not_to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    figure = page.locator("dl div").filter(has_text="Last batch").locator("dd")
    before = int(figure.inner_text())
    site.job.produce(Random(2), records=300, seconds=30)
    eventually(lambda: int(figure.inner_text()) > before, timeout_s=60)
    expect(page.locator("#live")).to_have_text("live")
    heights = page.locator("dd.time").evaluate_all("all => all.map(e => e.offsetHeight)")
    assert len(heights) == 2
    assert max(heights) <= figure.evaluate("e => e.offsetHeight"), "a time is broken over lines"
    keep_screenshot(page, f"pipeline-{scheme_of(page)}", site)


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
    page.on("dialog", lambda dialog: dialog.accept())
    for order, seen in (("Stop", "stopped"), ("Start", "running")):
        page.get_by_role("button", name=order, exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator("#order")).to_contain_text(seen)
        expect(page.locator("h1 .state")).to_have_text(seen)
    audited = [event for event in site.service.of_kind("audit") if event["what"] == "order"]
    assert {event["who"] for event in audited} == {"somebody-who-may-write"}


def test_it_says_when_it_is_not_current(site: Site, page: Page) -> None:
    site.sign_in(page, Role.READ)
    page.context.set_offline(True)
    expect(page.locator("#live")).to_contain_text("not live")
    page.context.set_offline(False)
    expect(page.locator("#live")).to_have_text("live")
