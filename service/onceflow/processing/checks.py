"""Whether a class can be a processor of an input, before anything runs."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import dedent
from typing import Any

from onceflow.columns import Columns, Scalar, parse_columns
from onceflow.errors import ConfigError, Fault, unknown_name
from onceflow.processing.parameters import NONE, Parameters
from onceflow.processing.processor import Processor, declared_state, declared_twice
from onceflow.processing.runner import Runner, When

RESERVED = frozenset(name for name in (*vars(Processor), *Processor.__annotations__))
"""Names that a state must not have."""


def make_runner(  # noqa: PLR0913  the choices of a step in the pipeline file
    kind: Any,
    *,
    name: str,
    columns: Columns,
    key: str | Sequence[str] | None,
    time: str,
    output: str | None,
    order: Sequence[str] = (),
    when: When = "arrival",
    keeps_going: bool = False,
    parameters: Parameters | None = None,
    initial: str = "",
) -> Runner:
    """Make the runner of a class over an input.

    Args:
        kind: the class.
        name: of the step.
        columns: of the input.
        key: instead of the class's.
        time: column of the event time.
        output: instead of the class's.
        order: columns that decide between records with the same event time.
        when: see `onceflow.processing.runner`.
        keeps_going: whether a record that fails is rejected.
        parameters: those that the class may read; None if nothing is known of them.
        initial: columns of the rows of its initial state; empty if it has none.

    Raises:
        ConfigError: with everything that is wrong.
    """
    if not (isinstance(kind, type) and issubclass(kind, Processor)):
        expected = "a class that derives from onceflow.processing.Processor"
        raise _refused(name, [Fault(f"{name} is not a processor", expected=expected)])
    found = key or kind.key
    keys = (found,) if isinstance(found, str) else tuple(found)
    faults = [
        *_of_class(kind),
        *_of_keys(keys, columns),
        *_unknown("order", order, columns),
        *_unknown("event_time", [time], columns),
        *(_of_parameters(kind, parameters) if parameters else ()),
    ]
    rows, first = None, None
    try:
        rows = _output(kind.output_for(columns, keys), output)
        if initial:
            first = parse_columns(initial)
            faults += _of_initial(kind, keys, columns, first)
    except ConfigError as error:
        faults += error.faults or (Fault(str(error), "output"),)
    if faults or rows is None:
        raise _refused(kind.__name__, faults)
    return Runner(
        name,
        kind,
        columns,
        keys,
        time,
        rows,
        tuple(order),
        when,
        keeps_going,
        parameters=parameters or NONE,
        initial_columns=first,
    )


def _refused(name: str, faults: Sequence[Fault]) -> ConfigError:
    return ConfigError("processor refused", subject=name, faults=tuple(faults))


def _of_class(kind: type[Processor]) -> Iterator[Fault]:
    if kind.on_records is Processor.on_records:
        yield Fault(
            f"{kind.__name__} has no on_records", expected="def on_records(self, key, records)"
        )
    try:
        kind()
    except Exception as error:  # noqa: BLE001  a user's class may raise anything
        yield Fault(
            f"{kind.__name__} cannot be made: {error}",
            expected="a class without arguments, which sets no attributes when it is made",
            suggestion="Write constants into the class.",
        )
    for name in declared_twice(kind):
        yield Fault(
            f"the state `{name}` is declared twice",
            kind.__name__,
            suggestion="Give each state a name of its own.",
        )
    for name, state in declared_state(kind).items():
        where = f"{kind.__name__}.{name}"
        if name in RESERVED or name.startswith("_"):
            taken = ", ".join(sorted(each for each in RESERVED if not each.startswith("_")))
            expected = f"a name without a leading underscore, and none of {taken}"
            yield Fault(f"a state cannot be called `{name}`", where, expected=expected)
        try:
            state.check()
        except ConfigError as error:
            yield from error.faults or [Fault(error.what, where)]
        except ValueError as error:
            yield Fault(str(error), where)


def _of_keys(keys: Sequence[str], columns: Columns) -> Iterator[Fault]:
    if not keys:
        yield Fault(
            "nothing says what records are grouped by",
            "key",
            expected='`key = "column"` in the class, or `key` in the pipeline file',
        )
    yield from _unknown("key", keys, columns)
    for name in keys:
        kind = columns.by_name.get(name)
        if kind is not None and (not isinstance(kind, Scalar) or kind.name in {"float", "double"}):
            yield Fault(
                f"records cannot be grouped by `{name}`, which is {kind.ddl}",
                "key",
                expected="columns that are equal or not: no NaN, two zeros, or parts",
                suggestion="Cast it to a decimal or to text by a query before the processor.",
            )


def _of_initial(
    kind: type[Processor], keys: Sequence[str], columns: Columns, initial: Columns
) -> Iterator[Fault]:
    if kind.on_initial is Processor.on_initial:
        yield Fault(
            f"{kind.__name__} has no on_initial", expected="def on_initial(self, key, rows)"
        )
    wanted, found = columns.by_name, initial.by_name
    for name in keys:
        if name in wanted and found.get(name) != wanted[name]:
            yield Fault(
                f"the initial state has no `{name}` of type {wanted[name].ddl}",
                "initial_state",
                expected="the columns of the key, as they are in the input",
            )


def _unknown(where: str, names: Sequence[str], columns: Columns) -> Iterator[Fault]:
    for name in names:
        if name not in columns.names:
            fault = unknown_name("no column of the input is called", name, columns.names)
            yield replace(fault, where=where)


def _of_parameters(kind: type[Processor], parameters: Parameters) -> Iterator[Fault]:
    """Names that nothing declares, as far as the code of the class has them as literals."""
    for name in dict.fromkeys(_read_by(kind)):
        if name not in parameters.declared:
            fault = unknown_name("no parameter is called", name, [*parameters.declared])
            yield replace(fault, where=kind.__name__)


def _read_by(kind: type[Processor]) -> Iterator[str]:
    for each in kind.__mro__[: kind.__mro__.index(Processor)]:
        try:
            tree = ast.parse(dedent(inspect.getsource(each)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(
                    value=ast.Attribute(value=ast.Name("self"), attr="parameters"),
                    slice=ast.Constant(str(name)),
                ):
                    yield name


def _output(declared: str, output: str | None) -> Columns:
    text = output or declared
    if not text:
        fault = Fault(
            "nothing says which columns come out",
            "output",
            expected='`output = "name type, ..."` in the class, or `output` in the pipeline file',
        )
        raise ConfigError("output refused", faults=(fault,))
    columns = parse_columns(text)
    for name in columns.names:
        if name.startswith("__"):
            fault = Fault(f"a column of the output cannot be called `{name}`", "output")
            raise ConfigError("output refused", faults=(fault,))
    return columns
