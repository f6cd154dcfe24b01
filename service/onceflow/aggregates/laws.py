"""Whether an aggregate keeps the laws of a commutative monoid; needs Hypothesis."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
from hypothesis import HealthCheck, Phase, Verbosity, find, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, NoSuchExample

from onceflow.aggregates.aggregate import Aggregate, order
from onceflow.aggregates.generate import values
from onceflow.clock import SystemClock
from onceflow.columns import Type, parse_type
from onceflow.errors import ConfigError

_EXAMPLES = 60
_SECONDS = 20
_MAX_VALUES = 3
_SETTINGS = settings(
    max_examples=_EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    verbosity=Verbosity.quiet,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

Case = tuple[Sequence[Any], Sequence[Any], Sequence[Any], Any]
"""Values of three accumulators, and one more value."""
Law = Callable[["_Checked", Case], tuple[object, object]]
"""Two things that must be equal."""


def check_laws(aggregate: Aggregate, samples: Sequence[Any] = ()) -> list[str]:
    """Look for values with which an aggregate breaks a law.

    Values are generated, the same at each call, and taken from samples. An aggregate that passes
    may still break a law with other values.

    Args:
        aggregate: to look at.
        samples: values of its input type, besides those that the aggregate has.

    Returns:
        A sentence for each law that is broken, with the smallest values found that break it. If
        methods raise or return another type than declared, only that is reported.
    """
    try:
        checked = _Checked.make(aggregate)
        kept = [checked.input.check(each) for each in (*aggregate.samples, *samples)]
    except (AttributeError, ConfigError, ValueError) as error:
        return [f"{aggregate.name}: {_declaration(error)}."]
    value = st.sampled_from(kept) | values(checked.input) if kept else values(checked.input)
    several = st.lists(value, max_size=_MAX_VALUES)
    cases = st.tuples(several, several, several, value)
    first = [(kept[::3], kept[1::3], kept[2::3], kept[-1])] if kept else []
    if broken := _smallest(checked, _types_hold, cases, first):
        return [f"{aggregate.name}: {_told(checked, _types_hold, broken)}."]
    found = {sentence: _smallest(checked, law, cases, first) for sentence, law in _LAWS.items()}
    if aggregate.can_subtract:
        found[_SUBTRACT] = _smallest(checked, _subtract, cases, first)
    laws = {**_LAWS, _SUBTRACT: _subtract}
    return [
        f"{aggregate.name}: {sentence}: {_told(checked, laws[sentence], broken)}."
        for sentence, broken in found.items()
        if broken is not None
    ]


@dataclass(frozen=True)
class _Checked:
    """An aggregate whose results are compared with their declared types."""

    aggregate: Aggregate
    input: Type
    accumulator: Type
    output: Type
    schema: Any

    @classmethod
    def make(cls, aggregate: Aggregate) -> _Checked:
        parts = (aggregate.input, aggregate.accumulator, aggregate.output)
        given, accumulator, output = (parse_type(each) for each in parts)
        schema = fastavro.parse_schema(accumulator.avro("acc"))
        return cls(aggregate, given, accumulator, output, schema)

    def zero(self) -> Any:
        return self._fits("zero()", self.accumulator, self._call("zero"))

    def add(self, acc: Any, value: Any) -> Any:
        return self._fits("add", self.accumulator, self._call("add", acc, value))

    def merge(self, a: Any, b: Any) -> Any:
        return self._fits("merge", self.accumulator, self._call("merge", a, b))

    def subtract(self, acc: Any, value: Any) -> Any:
        return self._fits("subtract", self.accumulator, self._call("subtract", acc, value))

    def result(self, acc: Any) -> Any:
        return self._fits("result", self.output, self._call("result", acc))

    def fold(self, given: Sequence[Any]) -> Any:
        acc = self.zero()
        for value in given:
            acc = self.add(acc, value)
        return acc

    def stored(self, acc: Any) -> Any:
        """An accumulator after it was written and read."""
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.schema, self.accumulator.to_avro(acc))
        out.seek(0)
        return self.accumulator.from_avro(fastavro.schemaless_reader(out, self.schema, None))

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self.aggregate, method)(*args)
        except Exception as error:
            text = f": {error}" if str(error) else ""
            raise _UnfitError(f"{method} raised {type(error).__name__}{text}") from error

    def _fits(self, method: str, kind: Type, value: Any) -> Any:
        try:
            return kind.check(value)
        except ValueError as error:
            raise _UnfitError(f"{method} does not return its declared type: {error}") from error


class _UnfitError(Exception):
    """A method raised, or returned another type."""


def _types_hold(checked: _Checked, case: Case) -> tuple[object, object]:
    """Call everything once; what does not fit raises."""
    a, b, _, value = case
    acc = checked.merge(checked.fold(a), checked.fold(b))
    checked.result(checked.add(acc, value))
    if checked.aggregate.can_subtract:
        checked.subtract(checked.add(acc, value), value)
    return (), ()


def _identity(checked: _Checked, case: Case) -> tuple[object, object]:
    acc = checked.fold(case[0])
    return (checked.merge(acc, checked.zero()), checked.merge(checked.zero(), acc)), (acc, acc)


def _commutes(checked: _Checked, case: Case) -> tuple[object, object]:
    a, b = checked.fold(case[0]), checked.fold(case[1])
    return checked.merge(a, b), checked.merge(b, a)


def _associates(checked: _Checked, case: Case) -> tuple[object, object]:
    a, b, c = (checked.fold(each) for each in case[:3])
    merge = checked.merge
    return merge(merge(a, b), c), merge(a, merge(b, c))


def _adds_as_it_merges(checked: _Checked, case: Case) -> tuple[object, object]:
    acc, value = checked.fold(case[0]), case[3]
    return checked.add(acc, value), checked.merge(acc, checked.add(checked.zero(), value))


def _subtract(checked: _Checked, case: Case) -> tuple[object, object]:
    acc, value = checked.fold(case[0]), case[3]
    return checked.subtract(checked.add(acc, value), value), acc


def _survives(checked: _Checked, case: Case) -> tuple[object, object]:
    acc = checked.fold(case[0])
    kept = checked.stored(acc)
    return (kept, checked.result(kept)), (acc, checked.result(acc))


def _repeats(checked: _Checked, case: Case) -> tuple[object, object]:
    first, second = checked.fold(case[0]), checked.fold(case[0])
    return (first, checked.result(first)), (second, checked.result(second))


def _changes_nothing(checked: _Checked, case: Case) -> tuple[object, object]:
    # As the aggregate returned them: a check may copy.
    aggregate = checked.aggregate
    a, b, value = aggregate.zero(), aggregate.zero(), case[3]
    for each in case[0]:
        a = aggregate.add(a, each)
    for each in case[1]:
        b = aggregate.add(b, each)
    given = (a, b, value)
    before = copy.deepcopy(given)
    aggregate.add(a, value)
    aggregate.merge(a, b)
    aggregate.result(a)
    if aggregate.can_subtract:
        aggregate.subtract(aggregate.add(a, value), value)
    return given, before


_LAWS: Mapping[str, Law] = {
    "the arguments of a method are changed": _changes_nothing,
    "the same values do not give the same result": _repeats,
    "an accumulator is not the same after it was stored and read": _survives,
    "merge with zero() changes an accumulator": _identity,
    "merge depends on the order of the two (it is not commutative)": _commutes,
    "merge depends on which two come first (it is not associative)": _associates,
    "add(acc, value) is not merge(acc, add(zero(), value))": _adds_as_it_merges,
}
_WITHOUT_VALUE = (_repeats, _survives, _identity, _commutes, _associates)
_SUBTRACT = "subtract does not undo add"


def _smallest(
    checked: _Checked, law: Law, cases: st.SearchStrategy[Case], first: Sequence[Case]
) -> Case | None:
    """The smallest case found that breaks a law."""
    seen: list[Case] = [each for each in first if _is_broken(checked, law, each)]
    limit = SystemClock().within(_SECONDS)

    def broken(case: Case) -> bool:
        if limit.is_over or not _is_broken(checked, law, case):
            return False
        seen.append(copy.deepcopy(case))
        return True

    try:
        return find(cases, broken, settings=_SETTINGS)
    except (NoSuchExample, Flaky):
        # Time was up, or it is broken now and then only.
        return seen[-1] if seen else None


def _is_broken(checked: _Checked, law: Law, case: Case) -> bool:
    try:
        left, right = law(checked, copy.deepcopy(case))
    except Exception:  # noqa: BLE001  a user's code
        return True
    return bool(order(left) != order(right))


def _told(checked: _Checked, law: Law, case: Case) -> str:
    """The outcome of a case, and its values."""
    try:
        left, right = law(checked, copy.deepcopy(case))
        shown = f"{_shown(left)} is not {_shown(right)}"
    except Exception as error:  # noqa: BLE001  a user's code
        shown = str(error)
    a, b, c, value = case
    given = [
        f"{name} of {_shown(each)}" for name, each in zip("abc", (a, b, c), strict=True) if each
    ]
    given += [f"value {_shown(value)}"] * (law not in _WITHOUT_VALUE)
    return f"{shown}, with {', '.join(given) or 'no values'}"


def _declaration(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return "; ".join([f"{error.what} {error.subject}", *(str(each) for each in error.faults)])
    return str(error)


def _shown(value: object) -> str:
    text = "".join(_parts(value))
    return text if len(text) <= 200 else f"{text[:200]}..."


def _parts(value: object) -> Iterator[str]:
    """Structs by their values alone."""
    if isinstance(value, list | tuple):
        yield "[" if isinstance(value, list) else "("
        for at, each in enumerate(value):
            yield ", " if at else ""
            yield from _parts(each)
        yield "]" if isinstance(value, list) else ")"
    else:
        yield repr(value)
