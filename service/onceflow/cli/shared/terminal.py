"""Text for people, without control characters of records, names or errors.

A terminal obeys escape sequences: they move the cursor, change titles, write to the clipboard and
hide text. Only what this program colours by itself may contain them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from onceflow.texts import visible

LONGEST_LINE = 400
"""Names of topics have up to 249 characters."""


class _Guarded:
    """A text stream that shows control characters instead of sending them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # By this name rich finds the stream to which it sends its own colours.
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_streams() -> None:
    """From now on, standard output and standard error show control characters as escapes.

    Whatever writes to them: commands, logs of libraries, tracebacks. JSON has none.
    """
    sys.stdout = cast("TextIO", _Guarded(sys.stdout))
    sys.stderr = cast("TextIO", _Guarded(sys.stderr))


def unguarded_output() -> TextIO:
    """Return standard output without its guard, for a rich console.

    While rich shows something live, it puts its own wrapper around the guard and looks below only
    one of the two. A console that was not given this stream would then show its own colours as
    escapes.
    """
    return cast("TextIO", getattr(sys.stdout, "rich_proxied_file", sys.stdout))


class Terminal(Console):
    """A console that takes no markup, and shows control characters as escapes.

    rich sends its colours past `guard_streams`. What is piped is not broken into the lines of a
    terminal.
    """

    def __init__(self, **named: Any) -> None:
        named.setdefault("file", unguarded_output())
        super().__init__(markup=False, emoji=False, **named)
        if not self.is_terminal and "width" not in named and "COLUMNS" not in os.environ:
            self.width = LONGEST_LINE

    def render_str(self, text: str, **named: Any) -> Text:
        """Text of a string."""
        return super().render_str(visible(text), **named)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does; a text with control characters loses its colours."""
        if isinstance(renderable, Text) and renderable.plain != visible(renderable.plain):
            plain = visible(renderable.plain)
            renderable = Text(plain, justify=renderable.justify, overflow=renderable.overflow)
        return super().render(renderable, options)


def say(*parts: str | tuple[str, str]) -> None:
    """Print a line; a part may have a colour."""
    Terminal(highlight=False).print(Text.assemble(*parts), soft_wrap=True)
