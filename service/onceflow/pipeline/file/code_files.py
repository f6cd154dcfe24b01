"""Python code as part of a query's identity: what a `transform` imports of its folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path


def code_of(transform: str, folder: Path) -> Mapping[str, str]:
    """File -> its syntax tree as text, of the module and of all that it imports from the folder.

    Comments and layout change nothing. Nothing is imported or run.
    """
    found: dict[str, str] = {}
    waiting = list(_files_of(transform.partition(":")[0], folder))
    while waiting:
        file = waiting.pop()
        name = file.relative_to(folder).as_posix()
        if name in found:
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError):
            # The analysis says so; until then it is another query than any other.
            found[name] = "unreadable"
            continue
        found[name] = ast.dump(tree)
        package = file.parent.relative_to(folder).parts
        for module in _imported(tree, package):
            waiting += _files_of(module, folder)
    return found


def _imported(tree: ast.Module, package: tuple[str, ...]) -> Iterator[str]:
    """Names of modules, and of what may be one: `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*around, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)


def _files_of(module: str, folder: Path) -> Iterator[Path]:
    """The module's file and those of the packages around it, if they are in the folder."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:length])
        candidates = (place.with_name(f"{place.name}.py"), place / "__init__.py")
        yield from (file for file in candidates if place.name and file.is_file())
