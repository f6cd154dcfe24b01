"""Tells whether a query is still the one that wrote the last batch.

A replay under another query, another Spark or another number of state partitions computes
different rows. Each part is recorded by name, so that a refusal says which one changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onceflow.errors import ConfigError, OnceflowError
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.ledger import NOTHING_COMMITTED, HeadEntry, canonical_json

DELIVERY_PART = "delivery"
"""Changes no rows, but what readers may rely on, so a change must be accepted too."""
_DIGEST = "sha256:"
_SHOWN_DIGITS = 16


@dataclass(frozen=True)
class QueryIdentity:
    """Everything that the results of a query depend on.

    Args:
        parts: name -> a value that people can read, or the `fingerprint` of something longer.
    """

    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """SHA-256 over all parts, as hexadecimal text."""
        return hashlib.sha256(canonical_json(dict(self.parts)).encode()).hexdigest()

    def changes_since(self, head: HeadEntry) -> Sequence[str]:
        """The parts that have changed since `head` was written; empty if `head` has no parts."""
        if not head.plan_parts or head.plan_hash == self.hash:
            return []
        names = sorted({*head.plan_parts, *self.parts})
        return [
            _told(name, head.plan_parts.get(name), self.parts.get(name))
            for name in names
            if self.has_other(name, head)
        ]

    def has_other(self, name: str, head: HeadEntry) -> bool:
        """Whether one part has changed since `head` was written."""
        return head.plan_parts.get(name) != self.parts.get(name)


def fingerprint(value: object) -> str:
    """A short mark of a long value: equal if and only if its canonical JSON is."""
    return _DIGEST + hashlib.sha256(canonical_json(value).encode()).hexdigest()[:_SHOWN_DIGITS]


def change_error(
    identity: QueryIdentity, head: HeadEntry, checkpoint: CheckpointFacts, *, is_accepted: bool
) -> OnceflowError | None:
    """Why a start under this identity is refused; None if it is not.

    Args:
        identity: of the query as it is now.
        head: position of the ledger; of this query.
        checkpoint: of this query.
        is_accepted: whether the operator gave `--accept-change`.
    """
    changes = identity.changes_since(head)
    if head.batch.batch_id == NOTHING_COMMITTED:
        return None
    if not changes:
        return _nothing_changed(head) if is_accepted else None
    if not is_accepted:
        return ConfigError(
            "this is not the query that wrote the last batch",
            subject=head.pipeline,
            expected="what the ledger has recorded",
            found=f"changes of {', '.join(changes)}",
            then="nothing was written; undo the changes, or accept them with"
            " `--accept-change --reason ...`",
        )
    if checkpoint.done < head.batch.batch_id:
        return ConfigError(
            "the last batch must be replayed by the query that wrote it",
            subject=head.pipeline,
            expected=f"batch {head.batch.batch_id} in the checkpoint's commit log",
            found=f"batch {checkpoint.done} as its newest, and changes of {', '.join(changes)}",
            then="nothing was written; run it as it was, `--until caught-up`, then change it",
        )
    if checkpoint.planned > checkpoint.done and identity.has_other(DELIVERY_PART, head):
        # What is written of it already has sequences that the other mode would write again.
        return ConfigError(
            "a planned batch must be finished in the mode in which it was begun",
            subject=head.pipeline,
            expected=f"no batch planned after {checkpoint.done}, and then another `delivery`",
            found=f"batch {checkpoint.planned} in the checkpoint's offset log",
            then="nothing was written; run it as it was, `--until caught-up`, then change it",
        )
    return None


def _nothing_changed(head: HeadEntry) -> ConfigError:
    return ConfigError(
        "this remedy does not apply",
        subject="accept-change",
        expected="a query that has changed",
        found=f"the one that wrote batch {head.batch.batch_id}",
        then="start without it",
    )


def _told(name: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"{name} (new)"
    if now is None:
        return f"{name} (removed)"
    return name if _DIGEST in (before + now) else f"{name} ({before}, now {now})"
