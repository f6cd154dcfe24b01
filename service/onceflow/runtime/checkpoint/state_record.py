"""Own files next to those of Spark that say what the state of a checkpoint is made of."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence, Set
from typing import Any

from onceflow.processing.codec import Codec
from onceflow.protocol.ledger import canonical_json
from onceflow.runtime.checkpoint.files import CheckpointFiles

_FOLDER = "processors"
_OPERATORS_FILE = "operators.json"
_OPERATOR_FIELDS = {"operator", "kind", "by", "key", "computes", "value"}
_STATE_FIELDS = {"declared", "schema"}


class StateRecord:
    """The operators and processors that have state, and what it is made of."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files

    def verify(self) -> None:
        """Read what every start needs.

        Raises:
            CorruptionError: a file is damaged.
        """
        self.operators()
        for name in self._files.names(_FOLDER):
            step, _, rest = name.removeprefix(f"{_FOLDER}/").partition(".")
            if rest == "json":
                self.states_of(step)

    def states_of(self, processor: str) -> Sequence[Mapping[str, Any]]:
        """Forms that the state of a processor has had, oldest first: `declared`, and `schema`.

        Raises:
            CorruptionError: the file is damaged.
        """
        name = _states_file(processor)
        found = self._listed(name, "states", _STATE_FIELDS) or ()
        try:
            for each in found:
                Codec(each["schema"]).check()
        except ValueError as error:
            raise self._files.damaged(name) from error
        return found

    def write_states_of(self, processor: str, states: Sequence[Mapping[str, Any]]) -> None:
        """Replace them, before a batch writes state in the newest form."""
        text = canonical_json({"states": list(states)})
        self._files.write(_states_file(processor), text)

    def forget_states_of(self, processor: str) -> None:
        """Have it begin without state."""
        for name in (_states_file(processor), _initial_file(processor)):
            if self._files.exists(name):
                self._files.delete_file(name)

    def operators(self) -> Sequence[Mapping[str, Any]] | None:
        """Operators that have state; None if the release that wrote the checkpoint did not say.

        Raises:
            CorruptionError: the file is damaged.
        """
        return self._listed(_OPERATORS_FILE, "operators", _OPERATOR_FIELDS)

    def write_operators(self, operators: Sequence[Mapping[str, Any]]) -> None:
        """Replace them, before a batch writes state of others."""
        text = canonical_json({"operators": list(operators)})
        self._files.write(_OPERATORS_FILE, text)

    def initial_of(self, processor: str) -> bytes | None:
        """Content of `write_initial_of`; None if the processor has no initial state.

        Raises:
            CorruptionError: the file is damaged.
        """
        name = _initial_file(processor)
        found = self._files.read_json(name)
        if found is None:
            return None
        try:
            return b64decode(found["rows"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise self._files.damaged(name) from error

    def write_initial_of(self, processor: str, rows: bytes) -> None:
        """Keep the rows of an initial state, before there is a first batch."""
        text = canonical_json({"rows": b64encode(rows).decode()})
        self._files.write(_initial_file(processor), text)

    def _listed(self, name: str, what: str, fields: Set[str]) -> Sequence[Mapping[str, Any]] | None:
        found = self._files.read_json(name)
        if found is None:
            return None
        listed = found.get(what)
        if not isinstance(listed, list) or any(
            not isinstance(each, dict) or each.keys() != fields for each in listed
        ):
            raise self._files.damaged(name)
        return listed


def _states_file(processor: str) -> str:
    return f"{_FOLDER}/{processor}.json"


def _initial_file(processor: str) -> str:
    return f"{_FOLDER}/{processor}.initial.json"
