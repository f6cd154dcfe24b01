"""Whether the user's aggregates that a pipeline file names keep the laws; for `validate`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from onceflow.errors import Fault
from onceflow.pipeline.file.aggregate import parse_call
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.query.aggregates import declared_aggregates

REMEDY = (
    "Correct the class: values come in any order, and are divided among tasks and batches in any"
    " way."
)


def law_faults(file: PipelineFile) -> Iterator[Fault]:
    """Find values with which an aggregate breaks a law; needs Hypothesis.

    Raises:
        ConfigError: an aggregate cannot be made.
    """
    from onceflow.aggregates.laws import check_laws  # noqa: PLC0415  of an extra

    made = declared_aggregates(file.pipeline)
    for name in _own(file):
        for sentence in check_laws(made[name]):
            fault = Fault(sentence.rstrip("."), suggestion=REMEDY)
            yield file.fault_at(Rule.BROKEN_LAW, fault, ("aggregates", name))


def unchecked_laws(file: PipelineFile) -> Iterator[Fault]:
    """Say of which aggregates nothing can be found out here, for want of Hypothesis."""
    if find_spec("hypothesis") is None and (own := _own(file)):
        fault = Fault(
            f"the laws of {', '.join(own)} were not checked: Hypothesis is not installed",
            suggestion="Install `onceflow[laws]`.",
        )
        yield file.fault_at(Rule.BROKEN_LAW, fault, ("aggregates",))


def _own(file: PipelineFile) -> list[str]:
    aggregates = file.pipeline.aggregates
    return [name for name, text in aggregates.items() if not parse_call(text).is_ready]
