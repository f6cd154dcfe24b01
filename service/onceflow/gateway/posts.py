"""From a request to a post, and from its fate to an answer. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from onceflow.contracts.sink import OutputRecord
from onceflow.delivery.decoding import Decoder
from onceflow.gateway.model import PostedTopic

ANY_PARTITION = -1
"""Lets the client choose: by the key, or any."""
OVERHEAD_BYTES = 512
"""Of a record in its batch, which the topic's limit includes."""
DIGEST_BYTES = 16
MAX_REASON = 300
"""Characters of a reason in an answer."""
ONE, LINES = "application/json", "application/x-ndjson"
_CONTENT_TYPES: Mapping[str, str] = {ONE: ONE, LINES: LINES, "application/jsonl": LINES}
_KEY = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}|\"[\x20\x21\x23-\x5b\x5d-\x7e]{1,255}\"")
"""With quotes, as the draft of the header has it; many clients leave them out."""

Place: TypeAlias = tuple[int, int]
Run: TypeAlias = tuple[int, int, int]
"""Partition, first offset, and number of records at consecutive offsets."""


@dataclass(frozen=True)
class Answer:
    """The status of a request, and what goes with it.

    Args:
        fields: of the JSON body.
        retry_after_s: when to send the same again; None if that is of no use, or of no need.
        is_moved: whether another instance may know better.
    """

    status: int
    fields: Mapping[str, Any]
    retry_after_s: int | None = None
    is_moved: bool = False

    @property
    def is_problem(self) -> bool:
        """Whether the post was refused or has failed."""
        return self.status >= 400


class Refusal(Exception):
    """A request that is answered without looking further."""

    def __init__(self, status: int, detail: str, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.answer = problem(status, detail, retry_after_s)


def problem(
    status: int, detail: str, retry_after_s: int | None = None, *, is_moved: bool = False
) -> Answer:
    """The answer to a request that failed: one sentence and a status, as RFC 9457 has it."""
    return Answer(status, {"status": status, "detail": detail}, retry_after_s, is_moved)


def accepted(topic: str, places: Sequence[Place]) -> Answer:
    """The answer to a post whose records were written there."""
    return _accepted(topic, len(places), runs_of(places))


def _accepted(topic: str, records: int, runs: Sequence[Run]) -> Answer:
    written = [{"partition": p, "offset": offset, "count": count} for p, offset, count in runs]
    return Answer(202, {"topic": topic, "records": records, "written": written})


def runs_of(places: Sequence[Place]) -> Sequence[Run]:
    """The same places, with consecutive offsets of a partition as one."""
    runs: list[list[int]] = []
    for partition, offset in sorted(places):
        if runs and runs[-1][0] == partition and sum(runs[-1][1:]) == offset:
            runs[-1][2] += 1
        else:
            runs.append([partition, offset, 1])
    return [(partition, offset, count) for partition, offset, count in runs]


@dataclass(frozen=True)
class KeyOf:
    """An idempotency key: its hash, which also tells its slot, and the digest of the post."""

    hashed: bytes
    digest: str

    def slot(self, slots: int) -> int:
        """The slot that remembers the key."""
        return int.from_bytes(self.hashed[:8]) % slots


def key_of(header: str, caller: str, content: tuple[str, str, bytes]) -> KeyOf:
    """Read the header `Idempotency-Key`.

    Args:
        header: its value.
        caller: whose key it is: callers do not see, or use up, one another's.
        content: topic, content type and body.

    Raises:
        Refusal: 400, it is not a key.
    """
    if not _KEY.fullmatch(header):
        detail = "Idempotency-Key: expected 1 to 255 visible ASCII characters, in quotes or without"
        raise Refusal(400, detail)
    key = header.strip('"')
    topic, content_type, body = content
    digest = _hash(f"{topic}\0{content_type}\0".encode() + body)
    return KeyOf(_hash(f"{caller}\0{key}".encode()), digest.hex())


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def content_type_of(header: str) -> str:
    """`ONE` or `LINES`.

    Raises:
        Refusal: 415, it is another type.
    """
    name = header.partition(";")[0].strip().lower()
    if name not in _CONTENT_TYPES:
        raise Refusal(415, f"Content-Type: expected {ONE} for one record or {LINES} for many")
    return _CONTENT_TYPES[name]


@dataclass(frozen=True)
class Door:
    """Lets records into one topic.

    Args:
        max_records: of one post.
        max_bytes: of one record, key and value together: what the topic takes.
    """

    topic: str
    block: PostedTopic
    max_records: int
    max_bytes: int
    _decoder: Decoder = field(init=False, repr=False)
    _key_at: int | None = field(init=False)

    def __post_init__(self) -> None:
        columns, key = self.block.columns, self.block.key
        needed = columns.required | ({key} if key else set())
        object.__setattr__(self, "_decoder", Decoder(columns, frozenset(needed), ()))
        at = [*columns.by_name].index(key) if key else None
        object.__setattr__(self, "_key_at", at)

    def records(self, content_type: str, body: bytes) -> Sequence[OutputRecord]:
        """The records of a body, each as it was sent.

        Raises:
            Refusal: 422, a record does not fit, or there is none; 413, one is too large, or there
                are too many.
        """
        lines = [body] if content_type == ONE else body.split(b"\n")
        if len(lines) > self.max_records + 1:  # the last may be empty
            self._refuse_many(len(lines))
        records = [
            self._record(number, line)
            for number, line in enumerate(lines, start=1)
            if line and not line.isspace()
        ]
        if not records:
            raise Refusal(422, "the body holds no record")
        if len(records) > self.max_records:
            self._refuse_many(len(records))
        return records

    def _record(self, number: int, line: bytes) -> OutputRecord:
        line = line.strip()
        try:
            row = self._decoder.row(line)
            key = None if self._key_at is None else str(row[self._key_at]).encode()
        except ValueError as error:
            reason = str(error)[:MAX_REASON]
            raise Refusal(422, f"record {number} does not fit {self.topic}: {reason}") from None
        size = len(line) + len(key or b"")
        if size > self.max_bytes:
            found = f"record {number} has {size} bytes"
            raise Refusal(413, f"{found}; {self.topic} takes at most {self.max_bytes}")
        return OutputRecord(ANY_PARTITION, key, line)

    def _refuse_many(self, records: int) -> None:
        raise Refusal(413, f"{records} records in one post; at most {self.max_records} are allowed")


def remembered(key: KeyOf, topic: str, places: Sequence[Place], at_ms: int) -> bytes:
    """Encode what a slot remembers of a post."""
    fields = {"v": 1, "digest": key.digest, "at": at_ms, "topic": topic, "records": len(places)}
    return json.dumps(fields | {"written": runs_of(places)}, separators=(",", ":")).encode()


def answer_again(key: KeyOf, value: bytes) -> Answer:
    """The answer to a post whose key is remembered: as before, if it is the same post."""
    fields = json.loads(value)
    if fields["digest"] != key.digest:
        detail = "this Idempotency-Key was used with another body or topic; nothing was written"
        return problem(422, detail)
    return _accepted(fields["topic"], fields["records"], fields["written"])
