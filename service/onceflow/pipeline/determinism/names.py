"""Finds what a name in a function's source stands for, without running anything."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MUTATORS = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "update",
    }
)
"""Methods that change the container they are called on."""
_PUBLIC_NAMES = {"posix": "os", "_io": "io", "_thread": "threading", "_socket": "socket"}
"""Modules in C behind those that are documented."""
_BINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Local:
    """A name that the function binds itself; what it holds is not followed."""


@dataclass(frozen=True)
class Imported:
    """Something that the function imports itself, by its dotted name."""

    name: str


@dataclass(frozen=True)
class Found:
    """An object that exists: a global, a free variable, a builtin, or something of those.

    Args:
        value: the object.
        paths: how it was reached, by dotted names from a module or a class; none of a plain name.
    """

    value: Any
    paths: tuple[str, ...] = ()


Meaning: TypeAlias = Local | Imported | Found | None


@dataclass(frozen=True)
class Scope:
    """The names that a function sees.

    Args:
        outside: globals, free variables and builtins.
        bound: names that the function and those around it bind, with what they import.
    """

    outside: Mapping[str, Any]
    bound: Mapping[str, Local | Imported] = field(default_factory=dict)

    def inside(self, node: ast.AST) -> Scope:
        """The scope within a function, lambda or comprehension inside this one."""
        return Scope(self.outside, {**self.bound, **bindings(node)})

    def meaning(self, expression: ast.expr) -> Meaning:
        """Find what a name, or its attributes, stand for; None if only running it would tell."""
        if isinstance(expression, ast.Name):
            return self._of_name(expression.id)
        if isinstance(expression, ast.Call):
            return _result(self.meaning(expression.func))
        if not isinstance(expression, ast.Attribute):
            return None
        owner = self.meaning(expression.value)
        if isinstance(owner, Imported):
            return Imported(f"{owner.name}.{expression.attr}")
        return _attribute(owner, expression.attr) if isinstance(owner, Found) else owner

    def _of_name(self, name: str) -> Meaning:
        if name in self.bound:
            return self.bound[name]
        return Found(self.outside[name]) if name in self.outside else None


def scope_of(function: types.FunctionType) -> Scope:
    """The names that a function sees around it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    free = {name: cell.cell_contents for name, cell in cells if _is_set(cell)}
    return Scope({**vars(builtins), **function.__globals__, **free})


def names_of(meaning: Found | Imported) -> Sequence[str]:
    """Names of a definition with its module, however it was imported: `datetime.datetime.now`.

    For an object without a definition, that of its class. The name of the definition comes first.
    """
    if isinstance(meaning, Imported):
        return [meaning.name]
    value = meaning.value
    if isinstance(value, types.ModuleType):
        return [value.__name__]
    bound_to = getattr(value, "__self__", None)
    if bound_to is not None and not isinstance(bound_to, types.ModuleType):
        kind = bound_to if isinstance(bound_to, type) else type(bound_to)
        return [f"{_qualified(kind)}.{getattr(value, '__name__', '')}"]
    is_definition = isinstance(value, type) or inspect.isroutine(value)
    name = _qualified(value if is_definition else type(value))
    return [name, *meaning.paths]


def bindings(node: ast.AST) -> Mapping[str, Local | Imported]:
    """Names that a function, lambda or comprehension binds, not those of functions within it."""
    found: dict[str, Local | Imported] = {}
    is_global: set[str] = set()
    if isinstance(node, _BINDS):
        found |= dict.fromkeys(_parameters(node.args), Local())
    for each in statements_of(node):
        if isinstance(each, ast.Global | ast.Nonlocal):
            is_global |= set(each.names)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            found |= _imports(each)
        elif name := _bound_by(each):
            found.setdefault(name, Local())
    return {name: meaning for name, meaning in found.items() if name not in is_global}


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """Everything inside a function, without what stands inside of functions in it."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, (*_BINDS, ast.ClassDef)):
            waiting += ast.iter_child_nodes(each)


def changed_names(tree: ast.AST) -> frozenset[str]:
    """Names of containers and variables that functions of a module change from outside of them."""
    return frozenset(
        name
        for function in ast.walk(tree)
        if isinstance(function, _BINDS)
        for name in _changes(function)
    )


def _changes(function: ast.AST) -> Iterator[str]:
    own = bindings(function)
    for node in statements_of(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif (target := changed_by(node)) is not None and target.id not in own:
            yield target.id


def changed_by(node: ast.AST) -> ast.Name | None:
    """The variable whose content a statement or call changes, if it is a plain one."""
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return _root(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _root(node.func.value) if node.func.attr in MUTATORS else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next":
        return _root(node.args[0]) if node.args else None
    return None


def plain_function(value: Any) -> types.FunctionType | None:
    """Find the Python function of a method, a partial, a wrapper or a callable object."""
    for _ in range(10):
        if isinstance(value, types.FunctionType):
            return value
        inner = _behind(value)
        if inner is None:
            return None
        value = inner
    return None


def _behind(value: Any) -> Any:
    if isinstance(value, functools.partial):
        return value.func
    if isinstance(value, types.MethodType | staticmethod | classmethod):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    wrapped = getattr(value, "__wrapped__", None)
    return wrapped if callable(wrapped) else None


def _result(called: Meaning) -> Meaning:
    """Find what a call returns, if it is an instance of a known class."""
    if isinstance(called, Imported):
        return called
    return Found(called.value) if isinstance(called, Found) and _is_class(called.value) else None


def _attribute(found: Found, name: str) -> Meaning:
    """Read without running anything of the owner's, unless that is a module."""
    owner = found.value
    is_module = isinstance(owner, types.ModuleType)
    try:
        value = getattr(owner, name) if is_module else inspect.getattr_static(owner, name)
    except AttributeError:
        return None
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    kind = owner.__name__ if is_module else _qualified(owner if _is_class(owner) else type(owner))
    return Found(value, tuple(f"{path}.{name}" for path in dict.fromkeys([kind, *found.paths])))


def _root(node: ast.expr) -> ast.Name | None:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _bound_by(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
        return node.name
    return None


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    yield from (each.arg for each in every)
    yield from (each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None)


def _imports(node: ast.Import | ast.ImportFrom) -> Mapping[str, Imported]:
    if isinstance(node, ast.ImportFrom):
        return {
            each.asname or each.name: Imported(f"{node.module or ''}.{each.name}")
            for each in node.names
        }
    return {
        each.asname or each.name.partition(".")[0]: Imported(
            each.name if each.asname else each.name.partition(".")[0]
        )
        for each in node.names
    }


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_class(value: Any) -> bool:
    return isinstance(value, type)


def _qualified(value: Any) -> str:
    """Module and name of a definition; the package's own name where it exports it."""
    module = getattr(value, "__module__", None) or "builtins"
    name: str = getattr(value, "__qualname__", type(value).__qualname__)
    package = sys.modules.get(module.partition(".")[0])
    if getattr(package, name.partition(".")[0], None) is value and package is not None:
        module = package.__name__
    return f"{_PUBLIC_NAMES.get(module, module)}.{name}"
