"""The block `kafka:` of a source, as the connector understands it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from onceflow.errors import ConfigError
from onceflow_connectors.kafka.source.origin import Selection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Edge(Enum):
    """An end of the log at which a new pipeline may start."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnTrimmed(Enum):
    """What to do with a partition that appears after the start and has lost its first records."""

    FAIL = "fail"
    ACCEPT = "accept"
    """Read what is left."""


@dataclass(frozen=True)
class SourceOptions:
    """What to read, and where to start.

    Args:
        selection: of topics.
        starting: an end of the log, or a timestamp in unix milliseconds.
        retired: topics of the checkpoint that are read no more.
        on_trimmed: what to do with a partition that appears after the start without its beginning.
    """

    selection: Selection
    starting: Edge | int
    retired: frozenset[str]
    on_trimmed: OnTrimmed

    @classmethod
    def parse(cls, source: str, options: Mapping[str, Any]) -> SourceOptions:
        """Understand the options of a `SourceSpec`.

        Args:
            source: name, for messages.
            options: `topics` or `pattern`, `starting`, `retired` and `on_trimmed`.

        Raises:
            ConfigError: they do not name topics, or `starting` is none of its forms.
        """
        topics, pattern = options.get("topics"), options.get("pattern")
        if (topics is None) == (pattern is None):
            raise ConfigError(
                "which topics to read is not clear",
                subject=f"source {source}",
                expected="either topics or a pattern",
            )
        retired = frozenset(options.get("retired", ()))
        names = None if pattern else tuple(name for name in topics or () if name not in retired)
        return cls(
            Selection(names, pattern or "", retired),
            _starting(source, options.get("starting", "earliest")),
            retired,
            OnTrimmed(options.get("on_trimmed", OnTrimmed.FAIL.value)),
        )


def _starting(source: str, value: object) -> Edge | int:
    for edge in Edge:
        if value == edge.value:
            return edge
    try:
        instant = datetime.fromisoformat(value["timestamp"])  # type: ignore[index]
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigError(
            "unreadable `starting`",
            subject=f"source {source}",
            expected="earliest, latest, or a timestamp in ISO 8601",
            found=repr(value),
        ) from error
    since = instant.replace(tzinfo=instant.tzinfo or UTC) - _EPOCH
    # Rounded up: a record of the millisecond that the instant lies in is older than it.
    return -(-since // timedelta(milliseconds=1))
