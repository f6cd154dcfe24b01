"""Which state a checkpoint has: operators, their stores, and the batches that can be read.

Layout (Spark's `OperatorStateMetadataV1` and `CommitLog`): `state/<operator>/_metadata/metadata`
names the stores of an operator; for a processor, the newest file of `_metadata/v2` does.
`commits/N` holds the id under which batch N has written each partition of each store. Batch N makes
version N + 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from onceflow.errors import ConfigError, did_you_mean
from onceflow.runtime.checkpoint.files import CheckpointFiles
from onceflow.runtime.checkpoint.state_files import version_of
from onceflow.runtime.checkpoint.state_record import StateRecord
from onceflow.runtime.state.forms import Forms

NEVER = sys.maxsize
"""The version of a store that has no beginning."""
KINDS: Mapping[str, str] = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "sessions",
    "symmetricHashJoin": "join",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication",
    "globalLimit": "limit",
    "transformWithStateInPySparkExec": "processor",
}
"""Spark's names of operators, and ours."""
_METADATA = re.compile(r"state/(?P<operator>\d+)/_metadata/(metadata|v2/(?P<number>\d+))")
_STEP = re.compile(rb'"name":"__processor_(?P<step>[^"]+)","type":"binary"')
"""In the schema of a processor's state: `KeyAtATime` has put it there."""
_JOIN_SIDE = re.compile(r"(?P<side>left|right)-keyWithIndexToValue")
"""A join has two stores for each side. The one before only counts the rows of a key."""


@dataclass(frozen=True)
class Store:
    """A part of an operator's state that Spark stores together.

    Attributes:
        variable: which of an operator's stores it is, for people; empty if there is one only.
        place: of its ids in the log of commits.
        prefix: how many columns of the key belong to the group; 0 if all do.
        counter: the store that counts the rows of a group, whose place is the one before; then the
            key ends with the number of a row. Empty if rows have no number.
        schema: the file of its schema, where Spark names it.
        family: the column family of its rows, if it has several.
    """

    name: str
    variable: str
    place: int
    prefix: int
    counter: str = ""
    schema: str = ""
    family: str = ""


@dataclass(frozen=True)
class Operator:
    """A part of a query that has state.

    Attributes:
        step: of the pipeline, if it is a processor.
    """

    operator_id: int
    name: str
    kind: str
    partitions: int
    stores: Sequence[Store]
    step: str = ""


class StateLayout:
    """The state of a checkpoint, as its files tell it."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._forms: dict[str, Forms] = {}

    def operators(self) -> Sequence[Operator]:
        """Every operator with state, in Spark's order.

        Raises:
            ConfigError: there is no checkpoint.
            CorruptionError: a file is damaged, or of a form that we do not know.
        """
        found = [
            match for name in self._files.names("state") if (match := _METADATA.fullmatch(name))
        ]
        if not found and not self._files.exists("metadata"):
            raise ConfigError(
                "there is no checkpoint",
                subject=self._files.location,
                expected="a pipeline that has run once, and the `checkpoint` of its file",
            )
        newest = {
            int(match["operator"]): match[0]
            for match in sorted(found, key=lambda match: int(match["number"] or 0))
        }
        operators = [self._operator(each, newest[each]) for each in sorted(newest)]
        names = [each.name for each in operators]
        return [
            replace(each, name=f"{each.name}-{each.operator_id}")
            if names.count(each.name) > 1
            else each
            for each in operators
        ]

    def forms(self, operator: Operator) -> Forms:
        """How the state of a processor was written."""
        read = partial(StateRecord(self._files).states_of, operator.step)
        return self._forms.setdefault(operator.step, Forms(operator.step, read))

    def batches(self, operator: Operator) -> Sequence[int]:
        """The batches as of which its state can be read, oldest first."""
        names = self._files.names(f"state/{operator.operator_id}")
        first = first_version(names) - 1
        found = sorted(batch for batch in self._files.numbers("commits") if batch >= first)
        # Nothing names a partition all of whose files are gone.
        folders = {name.rpartition("/")[0] for name in names if version_of(name)}
        if found and len(folders) < sum(map(len, self.unique_ids(operator, found[-1]))):
            return ()
        return found

    def is_done(self, batch: int) -> bool:
        """Whether the log of commits has this batch: Spark removes older ones."""
        return self._files.exists(f"commits/{batch}")

    def require_batch(self, operator: Operator, batch: int | None) -> int:
        """The batch to read; the newest if none is given.

        Raises:
            ConfigError: it cannot be read, or none can.
        """
        readable = self.batches(operator)
        if readable and (batch is None or batch in readable):
            return readable[-1] if batch is None else batch
        raise ConfigError(
            "the state of this batch cannot be read",
            subject=f"{operator.name} as of batch {'-' if batch is None else batch}",
            expected=batches_text(readable) or "a batch that is done, whose files are all there",
            then="Spark keeps the state of the newest 100 batches or so",
        )

    def unique_ids(self, operator: Operator, batch: int) -> Sequence[Sequence[str]]:
        """For each partition the ids of its stores.

        Raises:
            CorruptionError: the log has none, or is damaged.
        """
        name = f"commits/{batch}"
        try:
            _, line = (self._files.read(name) or "").splitlines()[:2]
            ids: Sequence[Sequence[str]] = json.loads(line)["stateUniqueIds"][
                str(operator.operator_id)
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise self._files.damaged(name) from error
        return ids

    def newest_settings(self) -> Mapping[str, str]:
        """Spark's settings that the checkpoint has pinned.

        Raises:
            CorruptionError: the log of offsets is damaged.
        """
        name = f"offsets/{max(self._files.numbers('commits'), default=0)}"
        try:
            line = (self._files.read(name) or "").splitlines()[1]
            settings: Mapping[str, str] = json.loads(line)["conf"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise self._files.damaged(name) from error
        return settings

    def _operator(self, operator_id: int, name: str) -> Operator:
        facts = self._metadata(name)
        try:
            spark_name = str(facts["operatorInfo"]["operatorName"])
            kind = KINDS.get(spark_name, spark_name)
            stores = self._stores(operator_id, kind, facts)
            partitions = int(facts["stateStoreInfo"][0]["numPartitions"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise self._files.damaged(name) from error
        step = self._step(stores[0]) if kind == "processor" else ""
        return Operator(operator_id, step or kind, kind, partitions, stores, step)

    def _stores(self, operator_id: int, kind: str, facts: Mapping[str, Any]) -> Sequence[Store]:
        if kind == "processor":
            (store,) = facts["stateStoreInfo"]
            variables = json.loads(facts["operatorPropertiesJson"])["stateVariables"]
            (family,) = [
                each["stateName"] for each in variables if each["stateVariableType"] == "ValueState"
            ]
            # Its path is that of the checkpoint where it was made, which this may be a copy of.
            file = store["stateSchemaFilePaths"][-1].rpartition("/")[2]
            schema = f"state/{operator_id}/_stateSchema/{store['storeName']}/{file}"
            return [Store(store["storeName"], "", 0, 0, schema=schema, family=family)]
        stores = []
        for place, store in enumerate(facts["stateStoreInfo"]):
            side = _JOIN_SIDE.fullmatch(store["storeName"])
            if kind != "join" or side:
                variable = side["side"] if side else ""
                counter = f"{variable}-keyToNumValues" if side else ""
                if side and facts["stateStoreInfo"][place - 1]["storeName"] != counter:
                    raise ValueError(store["storeName"])
                prefix = store["numColsPrefixKey"]
                stores.append(Store(store["storeName"], variable, place, prefix, counter))
        return stores

    def _step(self, store: Store) -> str:
        content = self._files.read_unverified(store.schema)
        found = _STEP.search(content) if content is not None else None
        if not found:
            raise self._files.damaged(store.schema)
        return found["step"].decode()

    def _metadata(self, name: str) -> Mapping[str, Any]:
        try:
            version, line = (self._files.read(name) or "").splitlines()
            facts: Mapping[str, Any] = json.loads(line)
            if version not in {"v1", "v2"} or not facts["stateStoreInfo"]:
                raise self._files.damaged(name)
        except (ValueError, KeyError, TypeError) as error:
            raise self._files.damaged(name) from error
        return facts


def find_operator(operators: Sequence[Operator], text: str | None) -> Operator:
    """The operator with this name or number; without a text, the only one.

    Raises:
        ConfigError: there is none, or several.
    """
    found = [o for o in operators if text in {None, o.name, str(o.operator_id)}]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{o.name} ({o.operator_id})" for o in operators)
    raise ConfigError(
        "the query has no such state" if text else "say which state",
        subject=text or "",
        expected=f"one of {names}" if names else "a query with state: it has none",
        then=did_you_mean(text or "", [o.name for o in operators]),
    )


def first_version(names: Iterable[str]) -> int:
    """The first version that all stores of an operator can be loaded as of.

    A store begins with its first version or with a snapshot, and goes on by changelogs, of which
    none may be missing.
    """
    stores: dict[str, dict[int, bool]] = {}
    for name in names:
        if version := version_of(name):
            begins = stores.setdefault(name.rpartition("/")[0], {})
            is_begin = version == 1 or name.endswith(".zip")
            begins[version] = begins.get(version, False) or is_begin
    return max(map(_first_of, stores.values()), default=NEVER)


def _first_of(begins: Mapping[int, bool]) -> int:
    """The first version to begin with, of a store with these, from which on all are there."""
    first, version = NEVER, max(begins)
    while version in begins:
        first = version if begins[version] else first
        version -= 1
    return first


def batches_text(readable: Sequence[int]) -> str:
    """The batches in words; empty if there are none."""
    return f"one from {readable[0]} to {readable[-1]}" if readable else ""
