"""A kind of source as the pipeline file sees it, and how it is found: by the key of its block.

A package adds a kind by an entry point of the group `onceflow.sources`. The name of the entry point
is the key in the file; it points to a `SourceBlock`, which says what may stand below that key and
makes the planner and the readers. No Arrow here: a file can be checked where none is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from onceflow.contracts.block import Block
from onceflow.contracts.kinds import find_kind, installed
from onceflow.contracts.topic_pattern import topic_pattern

if TYPE_CHECKING:
    from onceflow.contracts.connector import Connection
    from onceflow.contracts.source import Planner, Reader, SourceSpec

ENTRY_POINT_GROUP = "onceflow.sources"
DEFAULT_MAX_RECORDS_PER_BATCH = 500_000
"""Where throughput stops growing (measured), far below what a 2 GB driver can hold."""


@dataclass(frozen=True)
class Capabilities:
    """The promises of a source. Exactly once needs the first three.

    Args:
        is_replayable: a split can be read again later, within the retention of the origin.
        has_stable_ranges: the same split always holds the same records.
        is_ordered: a split yields its records in the same order every time.
        tells_silence: `Planner.is_silent` can be asked; only `idle_after` needs it.
    """

    is_replayable: bool
    has_stable_ranges: bool
    is_ordered: bool
    tells_silence: bool = False


@dataclass(frozen=True)
class KafkaTopics:
    """Topics of the pipeline's own brokers that a source reads, by name or by pattern.

    Those that are `retired` were read before and are read no more; they may be gone.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    retired: frozenset[str] = frozenset()

    @property
    def named(self) -> tuple[str, ...]:
        """Those that are named and not retired."""
        return tuple(name for name in self.names if name not in self.retired)

    def covers(self, topic: str) -> bool:
        """Whether a topic of this name is read.

        A pattern never matches an internal topic: a pipeline that reads its own ledger makes a
        record with each batch that it commits.
        """
        if self.pattern is None:
            return topic in self.named
        return topic not in self.retired and topic_pattern(self.pattern)(topic)


class SourceBlock(Block):
    """The block of a source in a pipeline file. Derive one for each kind of source.

    Its fields are the keys that the user may write, each with a description, which `onceflow
    validate --schema` shows. Unknown keys are refused.
    """

    capabilities: ClassVar[Capabilities]
    outside_results: ClassVar[frozenset[str]] = frozenset({"max_records_per_batch"})
    """Fields that decide when and where records are read, but not which rows come out: a pipeline
    goes on after they change. A change of any other field counts as a change of the query."""

    max_records_per_batch: int = Field(
        default=DEFAULT_MAX_RECORDS_PER_BATCH,
        ge=1,
        description="Bound on the records of one batch.",
    )

    _written: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_what_is_written(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        block = handler(data)
        if isinstance(data, Mapping):
            block._written = data  # noqa: SLF001  it is our own
        return block

    @property
    def written(self) -> Mapping[str, Any]:
        """The block as the file has it: JSON, from which `model_validate` makes an equal one."""
        return self._written

    def with_limit(self, max_records: int) -> Self:
        """The same with this bound on a batch."""
        return type(self).model_validate({**self._written, "max_records_per_batch": max_records})

    def planner(self, spec: SourceSpec, connection: Connection) -> Planner:
        """Make the half that runs on the driver. Connects to nothing before its first use."""
        raise NotImplementedError

    def reader(self, spec: SourceSpec, connection: Connection) -> Reader:
        """Make the half that runs in a worker. Called there, for each task.

        Not called for a kind that Spark's JVM reads, which has a `java_client`.
        """
        raise NotImplementedError

    def java_client(self, connection: Connection) -> Mapping[str, str] | None:
        """Settings of Kafka's Java client that reads this kind; None if `reader` does.

        Raises:
            ConfigError: names each client property that Java's client does not have.
        """
        return None

    def describe(self) -> str:
        """Say in a few words what is read, for `onceflow explain` and the control page."""
        raise NotImplementedError

    def kafka_topics(self) -> KafkaTopics | None:
        """Topics read from the brokers that the pipeline writes to; None if there are none.

        Only such a source has lag, retention and open transactions that Onceflow can look at, a
        position in the pipeline's consumer group, and dead letters that can be sent again.
        """
        return None


def installed_sources() -> Sequence[str]:
    """Names of the kinds that are installed. Imports none of them."""
    return installed(ENTRY_POINT_GROUP)


def find_source(kind: str) -> type[SourceBlock]:
    """Import the block of a kind.

    Raises:
        ConfigError: no such kind is installed, or what is installed does not work.
    """
    return find_kind(ENTRY_POINT_GROUP, "source", kind, SourceBlock)
