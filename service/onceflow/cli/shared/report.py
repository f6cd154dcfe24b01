"""Shows a run: a live panel on a terminal, JSON lines everywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from onceflow.cli.shared.logs import JsonLines, log_libraries_as_json
from onceflow.cli.shared.terminal import Terminal
from onceflow.clock import Clock
from onceflow.contracts.observer import Report
from onceflow.protocol.ledger import NOTHING_COMMITTED
from onceflow.texts import span_text, time_text

REFRESH_PER_SECOND = 4
MAX_MESSAGES = 5
"""Warnings and news that the panel keeps below its figures."""
_FLEET_FIGURES = ("batch", "records/s", "lag", "event watermark", "last commit")
"""Those that a table of many pipelines has columns for."""


@dataclass
class LivePanel:
    """The newest facts of each kind, redrawn a few times a second."""

    clock: Clock
    facts: dict[str, Any] = field(default_factory=dict)
    messages: list[Text] = field(default_factory=list)
    live: Live | None = None

    def __call__(self, event: str, /, **facts: object) -> None:
        """Take in what happened and redraw."""
        self.facts |= facts
        if event == "batch":
            self.facts["last_commit_ms"] = self.clock.unix_ms()
        elif event == "warning":
            self.tell(Text(f"warning: {facts.get('text')}", style="yellow"))
        elif event != "progress":
            self.tell(Text(event.replace("_", " "), style="dim"))
        if self.live is not None:
            self.live.update(self.render())

    def render(self) -> Panel:
        """The panel as it stands."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", justify="right")
        table.add_column()
        for label, value in self.lines():
            table.add_row(label, value)
        title = f"onceflow · {self.facts.get('pipeline', '')}"
        return Panel(Group(table, *self.messages), title=title, title_align="left")

    def tell(self, message: Text) -> None:
        """Show a message below the figures."""
        self.messages = [*self.messages, message][-MAX_MESSAGES:]

    def lines(self) -> Iterator[tuple[str, str]]:
        """The figures, each with its name."""
        facts = self.facts
        batch_id = facts.get("batch_id", NOTHING_COMMITTED)
        yield "batch", "-" if batch_id == NOTHING_COMMITTED else _number(batch_id)
        yield "records/s", _number(facts.get("records_per_second"))
        yield "lag", f"{_number(facts.get('lag'))} records"
        yield "event watermark", time_text(facts.get("event_watermark_ms", 0))
        yield "last commit", self._age(facts.get("last_commit_ms"))
        if (left_s := facts.get("retention_left_s")) is not None:
            yield "retention", f"overtakes in {span_text(left_s)}"
        yield "state rows", _number(facts.get("state_rows"))
        yield "replays skipped", _number(facts.get("replays_skipped", 0))

    def _age(self, since_ms: int | None) -> str:
        return "-" if since_ms is None else f"{(self.clock.unix_ms() - since_ms) / 1000:.1f} s ago"


@contextmanager
def open_report(clock: Clock) -> Iterator[Report]:
    """The report that suits standard output."""
    if not sys.stdout.isatty():
        log_libraries_as_json(clock)
        yield JsonLines(clock)
        return
    panel = LivePanel(clock)
    starting = Spinner("dots", "starting")
    with Live(starting, console=Terminal(), refresh_per_second=REFRESH_PER_SECOND) as live:
        panel.live = live
        yield panel


@dataclass
class FleetPanel:
    """The newest facts of many pipelines, a row each. Told by a thread for each of them."""

    clock: Clock
    service: Report
    """Told what is of no pipeline: the audit, and where the service listens."""
    kind: str = "pipeline"
    panels: dict[str, LivePanel] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    live: Live | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, pipeline: str) -> Report:
        """A row, and what to tell it; without a name, for what is of no pipeline."""
        if not pipeline:
            return self.service
        self.panels[pipeline] = LivePanel(self.clock)
        return partial(self._take_in, pipeline)

    def render(self) -> Group:
        """The table as it stands, and the newest messages below."""
        table = Table(box=None, header_style="dim")
        for title in (self.kind, "state"):
            table.add_column(title)
        for title in _FLEET_FIGURES:
            table.add_column(title, justify="right")
        messages: list[Text] = []
        for name, panel in self.panels.items():
            figures = dict(panel.lines())
            shown = (figures[label] for label in _FLEET_FIGURES)
            table.add_row(name, self.states.get(name, ""), *shown)
            messages += (Text(f"{name}: ").append(message) for message in panel.messages)
        return Group(table, *messages[-MAX_MESSAGES:])

    def _take_in(self, pipeline: str, event: str, /, **facts: object) -> None:
        with self._lock:
            panel = self.panels[pipeline]
            if event == "failed":
                panel.tell(Text(str(facts.get("text")), style="red"))
            elif event in {"warning", "batch", "progress"}:
                panel(event, **facts)
            if event not in {"warning", "batch", "progress", "owner"}:
                self.states[pipeline] = event.replace("_", " ")
            if self.live is not None:
                self.live.update(self.render())


@contextmanager
def open_fleet_report(clock: Clock, kind: str = "pipeline") -> Iterator[Callable[[str], Report]]:
    """Makes the report of each pipeline or delivery, by its name, so that it suits the output."""
    if not sys.stdout.isatty():
        log_libraries_as_json(clock)
        yield lambda name: JsonLines(clock, None, **{kind: name})
        return
    errors = sys.stderr
    with Live(console=Terminal(), refresh_per_second=REFRESH_PER_SECOND) as live:
        # On the same terminal, what goes to standard error stands above the panel.
        service = JsonLines(clock, sys.stderr if errors.isatty() else errors)
        panel = FleetPanel(clock, service, kind, live=live)
        live.update(panel.render())
        yield panel.add


def _number(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else "-"
