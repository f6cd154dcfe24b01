"""`python -m tests.faults.mutants`: try them, show who was caught by what."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from onceflow.clock import SystemClock
from tests.faults.mutants.laboratory import Laboratory, Result
from tests.faults.mutants.mutant import Mutant, read_mutants
from tests.faults.mutants.show import JsonLines, Terminal, list_mutants
from tests.faults.mutants.trial import Verdict
from tests.support.brokers.choice import ADDRESS_VARIABLE, choose_broker

ROOT = Path(__file__).parents[3]
WITHOUT_BROKER = "tests/unit/"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Of mutants; all if none.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="For the verdicts, as JSON lines.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Show what there is.")] = False,
) -> None:
    """Break the product in many ways and see that a test notices each; exit code 1 if not."""
    mutants = chosen(names or [])
    if only_list:
        list_mutants(mutants, Console())
        return
    with TemporaryDirectory(prefix="onceflow-mutants-") as folder, ExitStack() as stack:
        environment = stack.enter_context(broker_for(mutants))
        tellers: list[Terminal | JsonLines] = [
            Terminal() if sys.stdout.isatty() else JsonLines(sys.stdout)
        ]
        if json_file is not None:
            file = stack.enter_context(json_file.open("w", encoding="utf-8"))
            tellers.append(JsonLines(file))
        laboratory = Laboratory(ROOT, Path(folder), environment, SystemClock())
        results = tell(laboratory, mutants, tellers)
    if any(result.verdict is not Verdict.CAUGHT for result in results):
        raise typer.Exit(1)


def chosen(names: Sequence[str]) -> Sequence[Mutant]:
    """The mutants of these names."""
    known = {mutant.name: mutant for mutant in read_mutants()}
    if unknown := sorted(set(names) - known.keys()):
        raise typer.BadParameter(f"no such mutant: {', '.join(unknown)}")
    return [known[name] for name in names] if names else list(known.values())


def tell(
    laboratory: Laboratory, mutants: Sequence[Mutant], tellers: Sequence[Terminal | JsonLines]
) -> Sequence[Result]:
    """Try them all, telling each verdict as it comes."""
    red = laboratory.run_unchanged(mutants)
    for teller in tellers:
        teller.unchanged(red)
    results = []
    for result in laboratory.try_all(mutants):
        results.append(result)
        for teller in tellers:
            teller.result(result)
    for teller in tellers:
        teller.end(results)
    return results


@contextmanager
def broker_for(mutants: Sequence[Mutant]) -> Iterator[dict[str, str]]:
    """One broker for all that need one, made by the product as it is; yields its variables."""
    if all(test.startswith(WITHOUT_BROKER) for mutant in mutants for test in mutant.tests):
        yield {}
        return
    with choose_broker().start() as broker:
        yield {ADDRESS_VARIABLE: broker.bootstrap_servers}


if __name__ == "__main__":
    typer.run(main)
