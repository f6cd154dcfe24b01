"""The one place where Spark's refusals of a query become faults that name the thing.

Spark tells what is wrong by an error condition and its parameters. Conditions that people meet have
an entry in a table; of any other, Spark's own first sentence is handed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from onceflow.errors import Fault, did_you_mean, unknown_name

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_LINE = re.compile(r"\(?line (\d+),? pos \d+\)?")
_CODE = re.compile(r"^\[[A-Z_.0-9]+\] ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
MAX_SENTENCE = 300
"""Characters of a sentence of Spark's that we hand on; some hold whole plans."""


def fault_of(error: PySparkException, declared: Mapping[str, Sequence[str]]) -> Fault:
    """Translate an error of Spark's analysis or parser, without a place.

    Args:
        error: as raised.
        declared: view -> its columns. Others are never suggested: they may be of a foreign file.
    """
    parameters = dict(error.getMessageParameters() or {})
    parameters["views"] = ", ".join(declared)
    columns = {column for names in declared.values() for column in names}
    for name in ("proposal", "referenceNames"):
        offered = parameters.get(name, "").strip("[]").split(", ")
        own = [each for each in offered if _bare(each).rpartition(".")[2] in columns]
        parameters[name] = ", ".join(own)
    for condition, explain in _EXPLANATIONS.items():
        if (error.getCondition() or "").startswith(condition):
            return explain(parameters)
    return _by_sentence(_sentence(error))


def line_of(error: PySparkException) -> int:
    """Line of the query at which Spark found the error, from 1; 1 if it does not say."""
    found = _LINE.search(str(error))
    return int(found[1]) if found else 1


def _unknown_column(parameters: Mapping[str, str]) -> Fault:
    name = _bare(parameters.get("objectName", ""))
    known = [_bare(part) for part in parameters["proposal"].split(", ") if part]
    return _unknown("column", name, known)


def _unknown_view(parameters: Mapping[str, str]) -> Fault:
    name = _bare(parameters.get("relationName", ""))
    return _unknown("view", name, [view for view in parameters["views"].split(", ") if view])


def _unknown(what: str, name: str, known: Sequence[str]) -> Fault:
    if name in known:
        # What Spark could not resolve is below, and it has not said what that is.
        return Fault(
            f"Spark cannot tell what `{name}` is computed from",
            suggestion="Compute functions of each source in a subquery of its own.",
        )
    return unknown_name(f"unknown {what}", name, known)


def _ambiguous(parameters: Mapping[str, str]) -> Fault:
    names = parameters["referenceNames"]
    return Fault(
        f"the column {parameters.get('name', '')} is in more than one view",
        expected=f"one of {names}" if names else "",
    )


def _unknown_function(parameters: Mapping[str, str]) -> Fault:
    return Fault(f"unknown function `{_bare(parameters.get('routineName', ''))}`")


def _unknown_type(parameters: Mapping[str, str]) -> Fault:
    name = parameters.get("typeName", "").strip('"')
    types = ("STRING", "BIGINT", "INT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "DATE", "BINARY")
    suggestion = did_you_mean(name.upper(), types)
    return Fault(f"unknown type `{name}`", expected="a type of Spark SQL", suggestion=suggestion)


def _syntax(parameters: Mapping[str, str]) -> Fault:
    return Fault(
        f"a syntax error at or near {parameters.get('error', 'its end')}",
        expected="one query (SELECT ...)",
    )


def _output_mode(parameters: Mapping[str, str]) -> Fault:
    operation = parameters.get("operation", "")
    if "session window" in operation:
        return Fault(
            "session windows cannot be emitted at every change",
            expected="`emit: final`",
            suggestion="Change `sink.emit`.",
        )
    return Fault(
        "no group of this aggregation ever closes, so `emit: final` would never emit it",
        expected="a window over the source's event time among the GROUP BY columns",
        suggestion="Group by window(...), or use `emit: updates`.",
    )


def _subquery(_: Mapping[str, str]) -> Fault:
    return Fault("a subquery cannot read a stream", suggestion="Write it as a JOIN.")


def _row_window(_: Mapping[str, str]) -> Fault:
    return Fault(
        "functions OVER (...) are not possible on a stream",
        suggestion="Aggregate by window(...) over the event time.",
    )


_EXPLANATIONS: Mapping[str, Callable[[Mapping[str, str]], Fault]] = {
    "UNRESOLVED_COLUMN": _unknown_column,
    "TABLE_OR_VIEW_NOT_FOUND": _unknown_view,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "UNRESOLVED_ROUTINE": _unknown_function,
    "UNSUPPORTED_DATATYPE": _unknown_type,
    "PARSE_SYNTAX_ERROR": _syntax,
    "PARSE_EMPTY_STATEMENT": _syntax,
    "STREAMING_OUTPUT_MODE": _output_mode,
    "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY": _subquery,
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": _row_window,
}
"""Beginning of an error condition -> its explanation from the condition's parameters."""

_SENTENCES: Sequence[tuple[str, Fault]] = (
    (
        "in Update output mode, only in Append",
        Fault("an outer join cannot be emitted at every change", expected="`emit: final`"),
    ),
    (
        "without a watermark in the join keys",
        Fault(
            "an outer join of streams never knows when to give up waiting",
            expected="event times on both sides, and a bound between them in the join condition",
            suggestion="Add e.g. `AND b.at BETWEEN a.at AND a.at + INTERVAL 10 SECONDS`.",
        ),
    ),
    (
        "Sorting is not supported",
        Fault(
            "a stream cannot be sorted",
            suggestion="Remove ORDER BY; `order_by` of the sink orders records.",
        ),
    ),
    (
        "issue due to global watermark",
        Fault(
            "a second aggregation or join over results that are emitted at every change",
            expected="`emit: final`",
        ),
    ),
    (
        "Multiple time/session window expressions",
        Fault(
            "several windows in one SELECT",
            suggestion="Compute each in a subquery: FROM (SELECT *, window(...) AS w FROM a) a.",
        ),
    ),
    (
        "Queries without streaming sources",
        Fault("the query reads no source", expected="FROM one of the pipeline's sources"),
    ),
)
"""Part of a sentence of a refusal without a condition -> its fault."""


def _by_sentence(sentence: str) -> Fault:
    for part, fault in _SENTENCES:
        if part in sentence:
            return fault
    return Fault(f"Spark refuses it: {sentence}")


def _sentence(error: PySparkException) -> str:
    text = _CODE.sub("", str(error).strip().splitlines()[0])
    return _LINE.sub("", _SQLSTATE.sub("", text)).strip(" ;.")[:MAX_SENTENCE]


def _bare(name: str) -> str:
    return name.replace("`", "")
