"""From the results of a sweep to `docs/faults.json`: what the page is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import confluent_kafka

from bench.report import describe_machine
from tests.faults.sweep.results import Outcome, Result, What, newest


@dataclass
class Played:
    """All runs of one test function, with whatever parameters.

    Args:
        runs: of its cases, over all seeds.
        failures: what repeats each.
    """

    runs: int = 0
    passed: int = 0
    seeds: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass
class Findings:
    """Everything that the page says and that was measured.

    Args:
        versions: of what was tested, and the machine in general words.
        codes: commits that the results are of; one with a plus had changes that are not committed.
        tests: by `FILE::NAME`.
        parts: storms, loads, recoveries and mutants; as their results.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    codes: Sequence[str] = ()
    tests: dict[str, Played] = field(default_factory=dict)
    parts: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> str:
        """Encode as the file next to the page."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Findings:
        """Decode what `to_json` gave."""
        told = json.loads(text)
        told["tests"] = {name: Played(**each) for name, each in told["tests"].items()}
        return cls(**told)

    def of_kind(self, what: What) -> list[Mapping[str, Any]]:
        """The results of one kind of part."""
        return [part for part in self.parts if part["what"] == what]


def collect(results: Iterable[Result]) -> Findings:
    """Count what there is; of what ran twice on the same code, the later run counts."""
    kept = list(newest(results).values())
    findings = Findings(versions(), sorted({result.code for result in kept}))
    for result in kept:
        if result.what is What.TEST:
            _add(findings.tests.setdefault(result.name.partition("[")[0], Played()), result)
    # Evidence and folders stay where they are; the page is public.
    findings.parts = [
        {
            **asdict(result),
            "says": result.says[:200],
            "again": _public(result.again),
            "figures": _without_words(result.figures),
        }
        for result in kept
        if result.what is not What.TEST
    ]
    return findings


def added(findings: Findings, results: Iterable[Result]) -> Findings:
    """With the results of another sweep; they replace those of the same tests and parts."""
    new = collect(results)
    again = {_identity(part) for part in new.parts}
    return Findings(
        new.versions,
        sorted({*findings.codes, *new.codes}),
        {**findings.tests, **new.tests},
        [*(part for part in findings.parts if _identity(part) not in again), *new.parts],
    )


def _identity(part: Mapping[str, Any]) -> tuple[str, str, int]:
    return part["what"], part["name"], part["seed"]


def versions() -> dict[str, str]:
    """Return the version of everything that takes part."""
    machine = describe_machine()
    return {
        "Kafka": machine["broker"].rpartition("-")[2],
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "confluent-kafka": version("confluent-kafka"),
        "Spark": machine["spark"],
        "Python": machine["python"],
        "Java": machine["java"],
        "machine": f"{machine['cores']} cores, {machine['memory']}, {machine['system'].split()[0]},"
        " shared with other work",
    }


def _add(played: Played, result: Result) -> None:
    played.runs += 1
    if result.seed not in played.seeds:
        played.seeds = sorted([*played.seeds, result.seed])
    if result.outcome is Outcome.PASSED:
        played.passed += 1
    else:
        played.failures.append(result.again)


def _without_words(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep of mutants only which tests caught them: a failure's text has paths of a machine."""
    if "lines" not in figures:
        return figures
    lines = [
        {**line, "tests": [{**t, "says": t["says"] and []} for t in line["tests"]]}
        if "tests" in line
        else line
        for line in figures["lines"]
    ]
    return {**figures, "lines": lines}


def _public(command: str) -> str:
    """The command without the folder that its user chose."""
    words = command.split()
    if "--folder" in words:
        place = words.index("--folder")
        del words[place : place + 2]
    return " ".join(words)
