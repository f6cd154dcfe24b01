"""From what was found in plan and code to what is refused, what is warned of, what is waived."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from onceflow.errors import Fault
from onceflow.pipeline.determinism.plan_rules import PlanFinding
from onceflow.pipeline.determinism.python_code import CodeFinding
from onceflow.pipeline.file.policies import Waiver
from onceflow.pipeline.file.rules import Rule

_IN_CODE: Mapping[Rule, tuple[str, str]] = {
    Rule.ND_CLOCK: (
        "reads a clock, which stands elsewhere when a batch is replayed",
        "Use the event time, or current_timestamp() in SQL, which is pinned for each batch.",
    ),
    Rule.ND_EFFECT: (
        "reaches outside of the function, and may get another answer when a batch is replayed",
        "Let another process write the answers to a topic, and join that.",
    ),
    Rule.ND_ENV: (
        "depends on the process and the machine that run it",
        "Write the value into the function; for a hash, use hashlib.",
    ),
    Rule.ND_GLOBAL: (
        "outlives the call and is changed by functions, so a replay finds another value",
        "Hand it on in the rows, or keep it in state.",
    ),
    Rule.ND_LAYOUT: (
        "depends on the task or process that a row happens to be in",
        "Use _topic, _partition and _offset, which are the same at every replay.",
    ),
    Rule.ND_RANDOM: (
        "gives another value when a batch is replayed",
        "Derive it from the row: uuid5, a hash, or random.Random(seed) with a seed of the row's.",
    ),
    Rule.ND_STATE: (
        "is an attribute of the object, which is not kept: a restart forgets it",
        (
            "Declare state in the class, such as `seen = Value('bigint')`; in an aggregate, keep it"
            " in the accumulator; in Spark's own StatefulProcessor, in the state of its handle."
        ),
    ),
}
"""Rule -> why, and what to do instead."""


@dataclass(frozen=True)
class Finding:
    """One thing that a replay may compute differently, ready to be judged.

    Args:
        place: a name for it that stays the same when lines move; what a waiver says.
        is_certain: whether it is refused unless it is waived.
    """

    rule: Rule
    place: str
    fault: Fault
    is_certain: bool = True


@dataclass(frozen=True)
class DeterminismJudgement:
    """The conclusion from all findings.

    Args:
        faults: why the pipeline is refused.
        warnings: what cannot be known, and waivers that waive nothing.
        waived: waivers that the pipeline needs today.
    """

    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]
    waived: tuple[Waiver, ...]


def of_plan(found: PlanFinding) -> Finding:
    """A finding in the query, or in the plan that a function has made."""
    fault = Fault(f"{found.name}: {found.reason}", suggestion=found.fix, rule=found.rule)
    return Finding(found.rule, f"query: {found.name}", fault, found.is_certain)


def of_code(found: CodeFinding, folder: Path) -> Finding:
    """A finding in Python code; places are relative to the folder of the pipeline file."""
    if found.rule is Rule.UNPROVEN_FUNCTION:
        reason, fix = "whether it gives the same result at every replay cannot be known", ""
    else:
        reason, fix = _IN_CODE[found.rule]
    file = os.path.relpath(found.file, folder)
    fault = Fault(
        f"{found.name} in {found.function}(): {reason}",
        file=file,
        line=found.line,
        suggestion=fix,
        rule=found.rule,
    )
    place = f"{file}: {found.function}: {found.name}"
    return Finding(found.rule, place, fault, found.rule is not Rule.UNPROVEN_FUNCTION)


def judge(
    findings: Iterable[Finding], waivers: Sequence[Waiver], today: date
) -> DeterminismJudgement:
    """Decide; `today`, in UTC, says which waivers still hold."""
    faults, warnings, used = [], [], []
    for finding in findings:
        waiver = _waiver_of(finding, waivers)
        if waiver is not None:
            used.append(waiver)
        if waiver is not None and today <= waiver.until:
            continue
        if finding.is_certain:
            faults.append(_refusal(finding, waiver))
        else:
            warnings.append(finding.fault)
    unused = [_unused(waiver) for waiver in waivers if waiver not in used]
    holding = tuple(w for w in dict.fromkeys(used) if today <= w.until)
    return DeterminismJudgement(tuple(faults), (*warnings, *unused), holding)


def _waiver_of(finding: Finding, waivers: Sequence[Waiver]) -> Waiver | None:
    matching = [w for w in waivers if (w.rule, w.place) == (finding.rule, finding.place)]
    return max(matching, key=lambda waiver: waiver.until, default=None)


def _refusal(finding: Finding, expired: Waiver | None) -> Fault:
    if expired is not None:
        told = f"{finding.fault.what} (waived until {expired.until})"
        return replace(finding.fault, what=told)
    way_out = f'Or waive {finding.rule} at "{finding.place}".'
    return replace(finding.fault, suggestion=f"{finding.fault.suggestion} {way_out}")


def _unused(waiver: Waiver) -> Fault:
    return Fault(
        f'nothing breaks {waiver.rule} at "{waiver.place}"',
        suggestion="Remove the waiver.",
        rule=Rule.UNUSED_WAIVER,
    )
