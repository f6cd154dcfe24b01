"""Rules: which messages, and what happens to them. Data and matching; pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.block import Block, Combination
from onceflow.pipeline.keys import ANY_NAME, Key, KeyIndex
from onceflow.pipeline.loader import validation_faults
from onceflow.pipeline.values import fault
from onceflow.pipeline.yaml_text import Document, parse_yaml
from tests.chaos.apis import API_KEYS, ERROR_CODES
from tests.chaos.refusals import REFUSABLE

Side = Literal["request", "response"]
Action = Literal["pass", "delay", "hold", "drop", "duplicate", "close", "error", "slow", "split"]

_NEEDS: Mapping[str, str] = {
    "delay_ms": "delay",
    "error": "error",
    "bytes_per_s": "slow",
    "chunk_bytes": "split",
}
"""Field -> the one action that has it, and cannot be without."""
_OVERTAKEN = ("delay", "hold")


def _known(what: str, names: Collection[str], example: str) -> AfterValidator:
    def check(name: str) -> str:
        if name in names:
            return name
        by_lower = {known.lower(): known for known in names}
        near = difflib.get_close_matches(name.lower(), by_lower, n=1)
        suggestion = f"Did you mean `{by_lower[near[0]]}`?" if near else ""
        raise fault(f"Kafka has no such {what}", expected=example, suggestion=suggestion)

    return AfterValidator(check)


ApiName = Annotated[str, _known("api", API_KEYS, "Kafka's name of one, such as `EndTxn`")]
ErrorName = Annotated[
    str, _known("error", ERROR_CODES, "Kafka's name of one, such as `NOT_COORDINATOR`")
]


@dataclass(frozen=True)
class Traffic:
    """What a rule looks at in a message.

    Args:
        on: which way it goes. A response is known by its request.
        api: Kafka's name; empty for an unknown one.
        client_id: of the client; empty if it has none.
        transactional_ids: that the request is about.
        broker: node id.
    """

    on: Side
    api: str
    client_id: str
    transactional_ids: tuple[str, ...]
    broker: int


class Rule(Block):
    """Which messages, and what happens to them."""

    name: str = Field(default="", description="For people; shown beside its count.")
    api: ApiName | None = Field(default=None, description="Kafka's name of the api. Default: any.")
    on: Side = Field(description="`request` or `response`.")
    client_id: str | None = Field(default=None, description="Pattern for the client's id.")
    transactional_id: str | None = Field(
        default=None, description="Pattern for a transactional id of the request."
    )
    broker: int | None = Field(default=None, description="Node id. Default: any.")
    skip: int = Field(default=0, ge=0, description="How many matches to leave alone first.")
    times: int | None = Field(
        default=None, ge=1, description="How often to act at most. Default: always."
    )
    action: Action = Field(description="What happens to the message.")
    delay_ms: int | None = Field(default=None, ge=0, description="With `delay`: how long.")
    error: ErrorName | None = Field(
        default=None, description="With `error`: Kafka's name of the error."
    )
    bytes_per_s: int | None = Field(default=None, ge=1, description="With `slow`: how fast.")
    chunk_bytes: int | None = Field(
        default=None, ge=1, description="With `split`: size of the pieces."
    )
    overtake: bool = Field(
        default=False,
        description="With `delay` and `hold`: whether later messages of the connection go on.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """An action without what it needs, or with what belongs to another."""
        action, api = given.get("action"), given.get("api")
        for name, owner in _NEEDS.items():
            is_given = given.get(name) is not None
            if action == owner and not is_given:
                yield (name,), fault(f"`action: {owner}` without `{name}`", expected=f"`{name}`")
            if is_given and action != owner:
                yield (name,), fault(f"`{name}` belongs to `action: {owner}`")
        if given.get("overtake") and action not in _OVERTAKEN:
            yield ("overtake",), fault("`overtake` belongs to `action: delay` and `action: hold`")
        if action == "error" and api not in REFUSABLE and (api is None or api in API_KEYS):
            expected = f"`api`: one of {', '.join(sorted(REFUSABLE))}"
            yield ("api",), fault("this api cannot be answered with an error", expected=expected)

    def matches(self, traffic: Traffic) -> bool:
        """Whether a message is one of those that the rule is about."""
        return (
            self.on == traffic.on
            and self.api in (None, traffic.api)
            and self.broker in (None, traffic.broker)
            and (self.client_id is None or fnmatchcase(traffic.client_id, self.client_id))
            and self._matches_transaction(traffic.transactional_ids)
        )

    def _matches_transaction(self, ids: tuple[str, ...]) -> bool:
        pattern = self.transactional_id
        return pattern is None or any(fnmatchcase(each, pattern) for each in ids)


class RulesFile(Block):
    """A file of rules."""

    rules: list[Rule] = Field(min_length=1, description="In order: the first that matches acts.")


def load_rules(path: Path) -> tuple[Rule, ...]:
    """Read and check a file of rules.

    Raises:
        ConfigError: lists every fault.
    """
    document = parse_yaml(_read(path))
    if not isinstance(document.data, dict):
        nothing = Fault(
            "not a file of rules", line=1, expected="a mapping that begins with `rules:`"
        )
        raise _refused(path, document.faults or (nothing,))
    try:
        rules = RulesFile.model_validate(document.data).rules
    except ValidationError as error:
        raise _refused(path, _faults(error, document)) from None
    if document.faults:
        raise _refused(path, document.faults)
    return tuple(rules)


def _faults(error: ValidationError, document: Document) -> tuple[Fault, ...]:
    top = Key(("rules", ANY_NAME), {}, is_required=False)
    inner = KeyIndex.of_model(Rule)
    keys = [
        *KeyIndex.of_model(RulesFile),
        top,
        *(Key((*top.path, *key.path), key.schema, key.is_required) for key in inner),
    ]
    found = (*document.faults, *validation_faults(error, document, KeyIndex(keys)))
    return tuple(sorted(found, key=lambda each: (each.line or 0, each.where)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "cannot read the rules",
            subject=str(path),
            expected="a YAML file in UTF-8",
            found=getattr(error, "strerror", None) or type(error).__name__,
        ) from error


def _refused(path: Path, faults: tuple[Fault, ...]) -> ConfigError:
    return ConfigError("rules refused", subject=str(path), faults=faults)
