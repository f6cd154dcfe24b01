"""`python -m tests.faults.sweep.page`: writes `docs/faults.md` from `docs/faults.json`.

With `--from FOLDER`, the results of a sweep become `docs/faults.json` first; with `--add FOLDER`,
they replace those of the same tests in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tests.faults.matrix import NOT_HERE, ROWS
from tests.faults.row import Absent, Row
from tests.faults.sweep.collect import Findings, Played, added, collect
from tests.faults.sweep.page_figures import NOT_RUN, mutant_lines, recovery_lines, storm_lines
from tests.faults.sweep.results import FILE, What, read

ROOT = Path(__file__).parents[3]
DATA = ROOT / "docs" / "faults.json"
PAGE = ROOT / "docs" / "faults.md"
TEMPLATE = Path(__file__).with_name("faults.template.md")


def render(findings: Findings) -> str:
    """The page."""
    parts = {
        "versions": _versions(findings),
        "rows": _rows(findings, ROWS),
        "absent": _absent(NOT_HERE),
        "storm": storm_lines(findings.of_kind(What.STORM)),
        "load": storm_lines(findings.of_kind(What.LOAD)),
        "recovery": recovery_lines(findings.of_kind(What.RECOVERY)),
        "mutants": mutant_lines(findings.of_kind(What.MUTANTS)),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        text = text.replace(f"<!-- {name} -->", "\n".join(lines).strip("\n"))
    return re.sub(r"\n{3,}", "\n\n", text)


def _versions(findings: Findings) -> Iterator[str]:
    if not findings.versions:
        yield f"{NOT_RUN}\n"
        return
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in findings.versions.items())
    codes = ", ".join(f"`{code}`" for code in findings.codes)
    yield f"| commits | {codes} |"
    yield ""
    if any("+" in code for code in findings.codes):
        yield "A commit with a plus had changes that were not committed yet.\n"


def _rows(findings: Findings, rows: Sequence[Row]) -> Iterator[str]:
    yield "| # | fault | demanded | seen | runs | seeds |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        played = [findings.tests.get(test, Played()) for test in row.tests]
        runs = sum(each.runs for each in played)
        seeds = sorted({seed for each in played for seed in each.seeds})
        told = f"{seen(played)} | {runs} | {_ranges(seeds)}"
        yield f"| {row.row_id} | {row.fault} | {row.demanded} | {told} |"
    yield ""
    failures = [
        again
        for row in rows
        for test in row.tests
        for again in findings.tests.get(test, Played()).failures
    ]
    yield from (f"- failed; again: `{again}`" for again in dict.fromkeys(failures))
    if failures:
        yield ""


def seen(played: Sequence[Played]) -> str:
    """In a word or two; as demanded only if every test of the row ran, and always passed."""
    failed = sum(each.runs - each.passed for each in played)
    missing = sum(not each.runs for each in played)
    if failed:
        return f"**{failed} failed**"
    if missing == len(played):
        return NOT_RUN
    return f"as demanded, {missing} of {len(played)} tests {NOT_RUN}" if missing else "as demanded"


def _absent(rows: Sequence[Absent]) -> Iterator[str]:
    if not rows:
        return
    yield "Rows of the matrix that no test of a real cluster plays, and why:"
    yield ""
    yield "| # | fault | why not |"
    yield "|---|---|---|"
    yield from (f"| {row.row_id} | {row.fault} | {row.reason} |" for row in rows)
    yield ""


def _ranges(numbers: Sequence[int]) -> str:
    """`1-20, 77`; a dash if there are none."""
    told: list[list[int]] = []
    for number in numbers:
        if told and number == told[-1][1] + 1:
            told[-1][1] = number
        else:
            told.append([number, number])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in told) or "-"


def kept() -> Findings:
    """The data of the page; empty before the first sweep."""
    if not DATA.exists():
        return Findings()
    return Findings.from_json(DATA.read_text(encoding="utf-8"))


def current() -> str:
    """The page as it should be."""
    return render(kept())


def main(
    folder: Annotated[Path | None, typer.Option("--from", help="Of a sweep; its results.")] = None,
    more: Annotated[
        list[Path] | None, typer.Option("--add", help="Of a sweep of some rows; its results.")
    ] = None,
) -> None:
    """Write the page again."""
    findings = collect(read(folder / FILE)) if folder is not None else kept()
    if more:
        findings = added(findings, [result for each in more for result in read(each / FILE)])
    DATA.write_text(findings.to_json(), encoding="utf-8")
    PAGE.write_text(current(), encoding="utf-8")
    typer.echo(f"wrote {PAGE}")


if __name__ == "__main__":
    typer.run(main)
