"""The published vectors are current, and a reader that knows nothing but them agrees with us."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from typing import Any

import pytest

from onceflow.errors import CorruptionError
from onceflow.protocol.record import RecordHeader
from tests.support.documents.protocol_vectors import FILE, text

PUBLISHED: dict[str, Any] = json.loads(FILE.read_text())


def test_the_published_vectors_are_current() -> None:
    assert FILE.read_text() == text(), (
        "run: python -m tests.support.documents.protocol_vectors > FILE"
    )


@pytest.mark.parametrize("vector", PUBLISHED["record_headers"], ids=lambda v: v["hex"][:8])
def test_headers_can_be_read_by_the_layout_alone(vector: dict[str, Any]) -> None:
    version, flags, lineage, *numbers = struct.unpack(">BBHIIIQQ", bytes.fromhex(vector["hex"]))
    names = ("pipeline_tag", "generation", "plan_tag", "batch_id", "sequence")
    assert version == 1
    named = dict(zip(names, numbers, strict=True))
    assert {"flags": flags, "lineage": lineage, **named} == vector["fields"]


@pytest.mark.parametrize("vector", PUBLISHED["unreadable_record_headers"])
def test_unreadable_headers_are_wrong_in_the_way_they_say(vector: dict[str, str]) -> None:
    data = bytes.fromhex(vector["hex"])
    assert vector["wrong"] == ("length" if len(data) != 32 else "version")
    with pytest.raises(CorruptionError, match="version" if len(data) == 32 else "bytes"):
        RecordHeader.unpack(data)


def test_tags_are_plain_crc32() -> None:
    for name, tag in PUBLISHED["pipeline_tags"].items():
        assert zlib.crc32(name.encode()) == tag
    for plan in PUBLISHED["plan_tags"]:
        assert zlib.crc32(plan["json"].encode()) == plan["tag"]


def test_digests_are_plain_sha256_over_lengths_and_bytes() -> None:
    for batch in PUBLISHED["digests"]:
        content = b""
        for partition, *payloads in batch["rows"]:
            lengths = [-1 if p is None else len(p) // 2 for p in payloads]
            content += struct.pack(">iii", partition, *lengths)
            content += b"".join(bytes.fromhex(p or "") for p in payloads)
        assert hashlib.sha256(content).hexdigest() == batch["sha256"]


def test_crc32_partitions_are_the_remainder() -> None:
    for vector in PUBLISHED["partitioners"]["crc32"]:
        key = bytes.fromhex(vector["key"] or "")
        assert zlib.crc32(key) % vector["partitions"] == vector["partition"]


@pytest.mark.parametrize("name", PUBLISHED["filter"])
def test_a_filter_written_from_the_specification_decides_alike(name: str) -> None:
    """Section 6 of the protocol in its shortest form: one pipeline state per tag, no classes."""
    delivered: dict[int, list[tuple[int, int, int, int]]] = {}
    lineages: dict[int, int] = {}
    for step in PUBLISHED["filter"][name]["steps"]:
        if "reload" in step:
            continue
        fields = struct.unpack(">BBHIIIQQ", bytes.fromhex(step["header"]))
        lineage, tag, generation, plan_tag, batch_id, sequence = fields[2:]
        seen, known = delivered.setdefault(tag, []), lineages.get(tag, 0)
        is_proven = (generation, batch_id, plan_tag, sequence) in seen
        is_new = seen and lineage != known and (lineage * known or sequence <= seen[-1][3])
        if is_new and (lineage * known or not is_proven):
            assert step["decision"] == "new lineage"
            continue
        assert decide(seen, generation, batch_id, plan_tag, sequence) == step["decision"]
        if step["decision"] == "deliver":
            lineages[tag] = lineage or known
            seen.append((generation, batch_id, plan_tag, sequence))


def decide(
    seen: list[tuple[int, int, int, int]],
    generation: int,
    batch_id: int,
    plan_tag: int,
    sequence: int,
) -> str:
    batches = sorted({one[:2] for one in seen})[-8:]
    known = [one for one in seen if one[:2] in batches]
    if any(one[:2] == (generation, batch_id) and one[2] != plan_tag for one in known):
        return "divergence"
    if any(one[3] == sequence and one[:2] != (generation, batch_id) for one in known):
        return "divergence"
    if not seen:
        return "deliver"
    newest = seen[-1]
    if sequence <= newest[3]:
        return "discard"
    if (generation, batch_id) < newest[:2]:
        return "divergence"
    return "deliver" if sequence == newest[3] + 1 else "gap"
