"""Shows results: to people as they come, to programs as JSON lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.markup import escape

from tests.faults.mutants.laboratory import Result
from tests.faults.mutants.mutant import Mutant
from tests.faults.mutants.trial import Verdict

_STYLES = {Verdict.CAUGHT: "green", Verdict.SURVIVED: "bold red", Verdict.BROKEN: "bold yellow"}


class Terminal:
    """Tells people."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    def unchanged(self, red: Sequence[str]) -> None:
        """The named tests ran without a mutant."""
        if red:
            self._line(f"red without any mutant: {', '.join(red)}", "bold yellow")
        else:
            self._line("every named test is green without a mutant", "dim")

    def result(self, result: Result) -> None:
        """One mutant was judged."""
        style = _STYLES[result.verdict]
        name, what = escape(result.mutant.name), escape(result.mutant.what)
        title = f"[{style}]{result.verdict.value:8}[/] [bold]{name}[/] {result.seconds:.0f} s"
        self._console.print(f"{title}\n  {what}")
        for line in result.why.splitlines():
            self._line(f"  {line}", style)
        for test, failure in result.run.failures.items():
            self._line(f"  {test}", "dim")
            for line in failure.says:
                self._line(f"    {line}", "dim")

    def end(self, results: Sequence[Result]) -> None:
        """All were judged."""
        counts = Counter(result.verdict for result in results)
        told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
        self._line(f"{len(results)} mutants: {told}", "bold")

    def _line(self, text: str, style: str) -> None:
        self._console.print(escape(text), style=style)


class JsonLines:
    """Tells programs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def unchanged(self, red: Sequence[str]) -> None:
        """The named tests ran without a mutant."""
        if red:
            self._write({"red_without_a_mutant": list(red)})

    def result(self, result: Result) -> None:
        """One mutant was judged."""
        self._write(result.to_json())

    def end(self, results: Sequence[Result]) -> None:
        """All were judged; the lines have told it."""

    def _write(self, value: object) -> None:
        self._file.write(json.dumps(value) + "\n")
        self._file.flush()


def list_mutants(mutants: Sequence[Mutant], console: Console) -> None:
    """List the mutants."""
    for mutant in mutants:
        console.print(f"[bold]{escape(mutant.name)}[/] {escape(mutant.what)}", highlight=False)
        for test in mutant.tests:
            console.print(f"  {escape(test)}", style="dim", highlight=False)
