"""Draws the way of records as frames and arrows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onceflow.pipeline.analysis.explain import Passage, Station

WIDTH = 78
"""Columns of the picture: fits every terminal, and reads well on a wide one."""


def box(node: Station) -> RenderableType:
    """A station as a frame with its facts."""
    from rich.panel import Panel
    from rich.text import Text

    facts = Text("\n".join(node.facts))
    return Panel(facts, title=node.title, title_align="left", expand=False)


def arrow(edge: Passage) -> Iterator[RenderableType]:
    """The way to the next station, with its promise."""
    from rich.text import Text

    yield Text("  │  ").append(edge.promise, style="bold green")
    yield Text("  ▼  ").append(edge.because, style="dim")
