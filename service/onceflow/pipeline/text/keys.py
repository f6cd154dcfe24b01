"""Every key that a model knows, to explain a missing one and to repair an unknown one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel

from onceflow.errors import did_you_mean

ANY_NAME = "*"
"""In a path, a name that the user chooses, e.g. of a source."""
ANY_ENTRY = "[]"
"""In a path, any entry of a list."""
Path = tuple[str, ...]


@dataclass(frozen=True)
class Key:
    """One key.

    Args:
        path: from the top of the file; ANY_NAME for names that the user chooses.
        schema: its JSON Schema.
        is_required: whether it must be there.
    """

    path: Path
    schema: Mapping[str, Any]
    is_required: bool


class KeyIndex:
    """Looks keys up.

    Args:
        keys: all of them, outer before inner.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = {key.path: key for key in keys}

    @classmethod
    def of_model(cls, model: type[BaseModel]) -> Self:
        """Index a model by its JSON Schema."""
        schema = model.model_json_schema(by_alias=True)
        return cls([*_keys(schema, schema.get("$defs", {}), ())])

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys.values())

    def siblings(self, path: Sequence[str | int]) -> Sequence[str]:
        """The keys that may stand where `path` stands."""
        around = self._generic(path)[:-1]
        return [known[-1] for known in self._keys if known[:-1] == around and known[-1] != ANY_NAME]

    def purpose(self, path: Sequence[str | int]) -> str:
        """Advice to add a missing key, with the first clause of its description."""
        key = self._keys.get(self._generic(path))
        clause = key.schema.get("description", "").partition(".")[0] if key else ""
        return f"Add it: {clause[0].lower()}{clause[1:]}." if clause else "Add it."

    def suggestion(self, path: Sequence[str | int]) -> str:
        """Suggest a key for an unknown one; empty if none is like it."""
        name = str(path[-1])
        homes = [known for known in self._keys if known[-1] == name and len(known) > 1]
        if len(homes) == 1:
            return f"It belongs to `{'.'.join(homes[0][:-1])}`."
        return did_you_mean(name.lower(), self.siblings(path))

    def _generic(self, path: Sequence[str | int]) -> Path:
        """The path with the user's own names replaced by ANY_NAME."""
        generic: Path = ()
        for part in path:
            exact = (*generic, str(part))
            anything = ANY_ENTRY if isinstance(part, int) else ANY_NAME
            generic = exact if exact in self._keys else (*generic, anything)
        named = (*generic[:-1], str(path[-1])) if path else ()
        return generic if generic in self._keys else named


def _keys(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: Path) -> Iterator[Key]:
    for name, found in schema.get("properties", {}).items():
        inner = (*path, name)
        yield Key(inner, found, name in schema.get("required", ()))
        yield from _keys(_resolved(found, definitions), definitions, inner)
        entry = _resolved(found.get("items", {}), definitions)
        yield from _keys(entry, definitions, (*inner, ANY_ENTRY))
    for entries in schema.get("patternProperties", {}).values():
        inner = (*path, ANY_NAME)
        yield Key(inner, entries, is_required=False)
        yield from _keys(_resolved(entries, definitions), definitions, inner)


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference to its definition, also within `X | None`."""
    for choice in (schema, *schema.get("anyOf", ())):
        if reference := choice.get("$ref"):
            found: Mapping[str, Any] = definitions[reference.rpartition("/")[2]]
            return found
    return schema
