"""The user's Python functions, judged by their source: nothing of them is run.

A function is followed into those that it mentions, as far as their source is in the pipeline's
folder. What of Python's own library and of others is not repeatable, `catalogue` knows by name.
"""

from __future__ import annotations

import ast
import inspect
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from onceflow.pipeline.determinism.catalogue import GIVEN_A_TIME, SEEDED, is_pure, python_rule
from onceflow.pipeline.determinism.names import (
    Found,
    Imported,
    Scope,
    changed_by,
    changed_names,
    names_of,
    plain_function,
    scope_of,
)
from onceflow.pipeline.file.rules import Rule
from onceflow.processing.processor import Processor, declared_state

SETS_UP = frozenset({"__init__", "init", "close"})
"""Methods of aggregates and Spark's processors that may set attributes."""
PROCESSORS = frozenset({"Aggregate", "StatefulProcessor", "Processor"})
"""Base classes of what keeps state, but not in attributes: Spark's and ours."""
INSTALLED = [
    Path(sysconfig.get_path(name)).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
]
"""Where Python keeps its own library and packages."""
MAX_WRAPPERS = 4
"""PySpark wraps a user's function in functions and objects of its own; not deeper than this."""
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


@dataclass(frozen=True)
class CodeFinding:
    """One use of something that a replay may find different.

    Args:
        rule: that it breaks; UNPROVEN_FUNCTION where nothing is known.
        name: what is used.
        file: in which.
        line: 1-based.
        column: 1-based.
        function: in which.
    """

    rule: Rule
    name: str
    file: Path
    line: int
    column: int
    function: str


@dataclass(frozen=True)
class LookedInto:
    """The result of an inspection.

    Args:
        findings: in the order of files and lines, each name once for each function.
        functions: names of all functions that were looked into.
    """

    findings: Sequence[CodeFinding]
    functions: frozenset[str]


def inspect_code(functions: Sequence[Callable[..., Any]], folder: Path) -> LookedInto:
    """Judge functions and everything in the pipeline's folder that they mention.

    Args:
        functions: as Spark or the pipeline calls them; PySpark's wrappers are looked through.
        folder: of the pipeline file. What lies elsewhere is known by name only.
    """
    inspector = _Inspector(folder.resolve())
    for function in functions:
        inspector.begin(function)
    in_order = sorted(inspector.found, key=lambda f: (str(f.file), f.line, f.column, f.name))
    once = {(f.rule, f.name, f.function): f for f in reversed(in_order)}
    findings = [f for f in in_order if once[f.rule, f.name, f.function] is f]
    return LookedInto(findings, frozenset(inspector.names))


@dataclass
class _Inspector:
    folder: Path
    found: list[CodeFinding] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    _seen: set[object] = field(default_factory=set)

    def begin(self, value: Any) -> None:
        """A function that Spark is given; the user's may be inside of PySpark's."""
        own = list(self.own(value, MAX_WRAPPERS))
        for each in own:
            self.follow(each)
        if not own:
            name = getattr(value, "__qualname__", type(value).__qualname__)
            self.note(Rule.UNPROVEN_FUNCTION, name, _Place(Path(), name), None)

    def follow(self, value: Any) -> None:
        """Judge a function or a class, if it is the user's."""
        if isinstance(value, type):
            self._class(value)
            return
        function = plain_function(value)
        if function is None or function.__code__ in self._seen or not self._is_own(function):
            return
        self.names.add(function.__name__)
        self._seen.add(function.__code__)
        file = Path(function.__code__.co_filename)
        place = _Place(file, function.__qualname__)
        nodes = _nodes_of(function)
        if not nodes:
            self.note(Rule.UNPROVEN_FUNCTION, function.__qualname__, place, None)
            return
        changed = changed_names(_tree(file))
        for node in nodes:
            _Body(self, place, changed).visit(node, scope_of(function))

    def _class(self, value: type) -> None:
        if value in self._seen or not self._is_own_class(value):
            return
        self._seen.add(value)
        is_processor = any(base.__name__ in PROCESSORS for base in value.__mro__)
        sets_up = frozenset() if issubclass(value, Processor) else SETS_UP
        for name, member in vars(value).items():
            function = plain_function(member)
            if function is not None:
                self.follow(function)
                if is_processor and name not in sets_up:
                    self._state(function, _kept_by(value))

    def _state(self, method: types.FunctionType, kept: Set[str]) -> None:
        """Attributes that a processor changes while it runs, and that are not kept."""
        place = _Place(Path(method.__code__.co_filename), method.__qualname__)
        own_name = next(iter(inspect.signature(method).parameters), "")
        for node in _nodes_of(method):
            for each in ast.walk(node):
                target = changed_by(each)
                if (
                    target is not None
                    and target.id == own_name
                    and _attribute(each, target) not in kept
                ):
                    self.note(Rule.ND_STATE, ast.unparse(each).partition("(")[0], place, each)

    def own(self, value: Any, depth: int) -> Iterator[Any]:
        """The user's functions and classes in something that Spark is given."""
        function = plain_function(value)
        kind = type(value)
        if function is not None and self._is_own(function):
            yield function
        elif self._is_own_class(value if isinstance(value, type) else kind):
            yield value if isinstance(value, type) else kind
        elif depth:
            for inner in _held(value, function):
                yield from self.own(inner, depth - 1)

    def _is_own(self, function: types.FunctionType) -> bool:
        return self._is_own_file(Path(function.__code__.co_filename))

    def _is_own_class(self, value: type) -> bool:
        try:
            return self._is_own_file(Path(inspect.getfile(value)))
        except (TypeError, OSError):
            return False

    def _is_own_file(self, file: Path) -> bool:
        """Packages may be installed below the pipeline's folder, and are not the user's even so."""
        if not file.exists():
            return False
        place = file.resolve()
        return place.is_relative_to(self.folder) and not any(map(place.is_relative_to, INSTALLED))

    def note(self, rule: Rule, name: str, place: _Place, node: ast.AST | None) -> None:
        """Something was found at a node, or about a whole function."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self.found.append(CodeFinding(rule, name, place.file, line, column, place.function))


@dataclass(frozen=True)
class _Place:
    file: Path
    function: str


@dataclass
class _Body:
    """One function's body, with the functions inside it."""

    inspector: _Inspector
    place: _Place
    changed: frozenset[str]
    """Globals that some function of the file changes."""

    def visit(self, node: ast.AST, scope: Scope) -> None:
        """Judge everything at and below a node; a name where its longest form stands."""
        if isinstance(node, ast.Call):
            self._use(node.func, scope, arguments=len(node.args) + len(node.keywords))
            for argument in [*node.args, *node.keywords]:
                self.visit(argument, scope)
        elif isinstance(node, ast.Attribute | ast.Name):
            self._use(node, scope, arguments=None)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            if isinstance(node, _Function):
                self.inspector.names.add(getattr(node, "name", "<lambda>"))
            self._children(node, scope.inside(node) if isinstance(node, _SCOPES) else scope)

    def _children(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            self.visit(child, scope)

    def _use(self, node: ast.expr, scope: Scope, arguments: int | None) -> None:
        meaning = scope.meaning(node)
        if isinstance(meaning, Found | Imported):
            self._judge(node, meaning, arguments)
            self._global(node, scope)
            for call in _calls_within(node):
                for argument in [*call.args, *call.keywords]:
                    self.visit(argument, scope)
        elif isinstance(node, ast.Name):
            return
        elif isinstance(node, ast.Attribute):
            self.visit(node.value, scope)
        else:
            self.visit(node, scope)

    def _judge(self, node: ast.expr, meaning: Found | Imported, arguments: int | None) -> None:
        names = names_of(meaning)
        if arguments is not None and _is_given(names, arguments):
            return
        rules = [rule for name in names if (rule := python_rule(name)) is not None]
        if rules and not _is_whole_module(meaning):
            self.inspector.note(rules[0], names[-1], self.place, node)
        elif arguments is not None and any(name in GIVEN_A_TIME for name in names):
            self.inspector.note(Rule.ND_CLOCK, names[-1], self.place, node)
        elif isinstance(meaning, Found) and (own := list(self.inspector.own(meaning.value, 1))):
            for each in own:
                self.inspector.follow(each)
        elif arguments is not None and not any(map(is_pure, names)):
            self.inspector.note(Rule.UNPROVEN_FUNCTION, names[-1], self.place, node)

    def _global(self, node: ast.expr, scope: Scope) -> None:
        """A variable outside of the function that functions change."""
        while isinstance(node, ast.Attribute | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name) and node.id in self.changed and node.id not in scope.bound:
            self.inspector.note(Rule.ND_GLOBAL, node.id, self.place, node)


def _kept_by(kind: type) -> Set[str]:
    """Attributes of a class that are kept: its declared state, if it is a processor of Onceflow."""
    if not issubclass(kind, Processor):
        return frozenset()
    return frozenset({"timers", *declared_state(kind)})


def _attribute(node: ast.AST, owner: ast.Name) -> str:
    """The attribute of `owner` that a node changes, or something of it."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return next((each.attr for each in found if each.value is owner), "")


def _held(value: Any, function: types.FunctionType | None) -> Iterator[Any]:
    """Places where a wrapper may hold a user's function: free variables, defaults, attributes."""
    if function is not None:
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                continue
        yield from function.__defaults__ or ()
    bound_to = getattr(value, "__self__", value)
    if not isinstance(bound_to, type | types.ModuleType):
        yield from getattr(bound_to, "__dict__", {}).values()


def _calls_within(node: ast.expr) -> Iterator[ast.Call]:
    """Calls on the way to an attribute: `Path(x)` in `Path(x).suffix`."""
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Call):
            yield node
        node = node.func if isinstance(node, ast.Call) else node.value


def _is_given(names: Sequence[str], arguments: int) -> bool:
    """A seed, or the time that another function would take from the clock."""
    if arguments and not SEEDED.isdisjoint(names):
        return True
    return any(arguments > GIVEN_A_TIME[name] for name in names if name in GIVEN_A_TIME)


def _is_whole_module(meaning: Found | Imported) -> bool:
    return isinstance(meaning, Found) and isinstance(meaning.value, types.ModuleType)


def _nodes_of(function: types.FunctionType) -> Sequence[_Function]:
    """The place of a function in its file; empty if the file has nothing or something else.

    Of several lambdas in a line, all: the compiled code does not tell which.
    """
    code = function.__code__
    is_lambda = function.__name__ == "<lambda>"
    try:
        tree = _tree(Path(code.co_filename))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, _Function)
        and isinstance(node, ast.Lambda) == is_lambda
        and _first_line(node) == code.co_firstlineno
    ]


def _first_line(node: _Function) -> int:
    """As compiled code tells it: with the decorators."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(each.lineno for each in decorators)])


def _tree(file: Path) -> ast.Module:
    return _tree_of(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _tree_of(file: Path, changed_at_ns: int) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))
