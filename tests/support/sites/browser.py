"""A real Chromium that looks at the status page, and what axe-core finds wrong with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

HERE = "127.0.0.1"
WAIT_MS = 60_000
AXE = (Path(__file__).parents[2] / "system" / "axe" / "axe.min.js").read_text()
"""axe-core 4.14.1, as its makers publish it."""
GRAVE = {"serious", "critical"}
ZONE = "Asia/Kolkata"
PHONE: ViewportSize = {"width": 375, "height": 812}


@contextmanager
def running_browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "apt-get install chromium"
    with sync_playwright() as playwright:
        expect.set_options(timeout=WAIT_MS)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened_page(browser: Browser, scheme: str) -> Iterator[Page]:
    """A page in light or dark colours; fails at the end if its scripts or its policy failed."""
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": 1280, "height": 1100},
        timezone_id=ZONE,
        locale="en-GB",
    )
    # Nothing outside may be needed.
    context.route(lambda url: HERE not in url and not url.startswith("data:"), _refuse)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    refused: list[str] = []
    page.on("pageerror", lambda error: refused.append(str(error)))
    page.on("console", lambda said: refused.append(said.text) if "Policy" in said.text else None)
    yield page
    context.close()
    assert refused == [], "scripts fail, or the content security policy refuses a part of the page"


def _refuse(route: object) -> None:
    raise AssertionError(f"the page asks for something outside: {route}")


def enter(page: Page, address: str, token: str) -> None:
    page.goto(address)
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/")


def grave_findings(page: Page) -> list[str]:
    """Return what axe finds wrong for people who use a screen reader, a keyboard or weak eyes."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert len(found["passes"]) > 5, "axe has looked at nothing"
    return [
        f"{each['id']}: {node['html']}"
        for each in found["violations"]
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]
