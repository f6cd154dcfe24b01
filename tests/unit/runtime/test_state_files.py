"""Finding the damaged file of a state that Spark could not load."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from onceflow.runtime.checkpoint.hadoop_checksum import checksum_name, checksum_of
from onceflow.runtime.checkpoint.state_files import find_copy, find_damage

CHANGELOG = bytes.fromhex(
    "4c5a34426c6f636b25870000009f000000de12fa01f7420002763300955b7b2276657273696f6e223a332c22636865"
    "636b706f696e74556e697175654964223a2234663763333335632d656638342d346632372d626330662d3137323564"
    "35353830363832227d2c4a001f344a0004f01c63333830346638332d656533382d343363322d613366322d36343031"
    "633331616537303422" + "7d5dffffffff4c5a34426c6f636b15000000000000000000000000"
)
"""Written by Spark 4.2 as version 5: it names 3 and 4, and changes nothing."""
NAME = "state/0/0/5_a.changelog"


def damage(files: dict[str, bytes]) -> list[str]:
    return list(find_damage(list(files), files.get))


def snapshot() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("metadata", "v1\n{}")
    return file.getvalue()


def test_sound_files_are_not_damaged() -> None:
    files = {NAME: CHANGELOG, "state/0/0/5_a.zip": snapshot(), "state/0/0/SSTs/1-a.sst": b"x"}
    checksums = {checksum_name(name): checksum_of(content) for name, content in files.items()}
    assert damage(files) == []
    assert damage({**files, **checksums}) == []


def test_a_changelog_of_a_processor_has_a_form_and_an_end_of_its_own() -> None:
    lineage = b'[{"version":3,"checkpointUniqueId":"a"},{"version":4,"checkpointUniqueId":"b"}]'
    plain = b"\x00\x02v4" + struct.pack(">H", len(lineage)) + lineage + b"\x01\x02\x00"
    assert damage({NAME: not_packed(plain)}) == []
    assert damage({NAME: not_packed(plain[:-1])}) == [NAME]
    assert damage({NAME.replace("5_", "6_"): not_packed(plain)}) == [NAME.replace("5_", "6_")]


def not_packed(plain: bytes) -> bytes:
    """A block of lz4-java, and the empty one at the end."""
    sizes = ((len(plain), plain), (0, b""))
    return b"".join(
        b"LZ4Block" + struct.pack("<BIII", 0x15, size, size, 0) + block for size, block in sizes
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        CHANGELOG[: len(CHANGELOG) // 2],
        CHANGELOG[:-40],
        CHANGELOG.replace(b"LZ4Block\x25", b"LZ4Blocj\x25"),
        CHANGELOG.replace(bytes.fromhex("9f000000"), bytes.fromhex("9e000000")),
    ],
)
def test_a_changelog_that_cannot_be_read_is_found_without_a_checksum(content: bytes) -> None:
    files = {NAME: content}
    if content.startswith(b"LZ4Blocj"):
        files[checksum_name(NAME)] = checksum_of(CHANGELOG)
    assert damage(files) == [NAME]


def test_a_changelog_under_the_name_of_a_later_one_is_found() -> None:
    name = "state/0/0/15_a.changelog"
    files = {name: CHANGELOG, checksum_name(name): checksum_of(CHANGELOG)}
    assert damage(files) == [name]


@pytest.mark.parametrize("content", [b"", b"PK", snapshot()[:-9]])
def test_a_snapshot_that_cannot_be_read_is_found(content: bytes) -> None:
    assert damage({"state/0/0/5_a.zip": content}) == ["state/0/0/5_a.zip"]


def test_a_table_is_judged_by_its_checksum() -> None:
    name = "state/0/0/SSTs/1-a.sst"
    assert damage({name: b"y", checksum_name(name): checksum_of(b"x")}) == [name]


def test_the_newest_version_is_named_first() -> None:
    names = [f"state/0/0/{version}_a.changelog" for version in (9, 11, 10)]
    assert [n.split("/")[-1] for n in damage(dict.fromkeys(names, b""))] == [
        "11_a.changelog",
        "10_a.changelog",
        "9_a.changelog",
    ]


def test_a_copy_of_an_older_file_under_a_newer_name_is_found() -> None:
    contents = {f"state/0/0/{version}_a.changelog": b"%d" % version for version in (8, 9, 10, 11)}
    assert find_copy(list(contents), with_checksums(contents).get) is None
    contents["state/0/0/10_a.changelog"] = contents["state/0/0/8_a.changelog"]
    assert find_copy(list(contents), with_checksums(contents).get) == "state/0/0/10_a.changelog"


@pytest.mark.parametrize(
    "contents",
    [
        {"0/8_a.changelog": b"x", "0/9_a.changelog": b"x", "0/11_a.zip": b"snapshot"},
        {"0/8_a.changelog": b"the same batch", "0/8_b.changelog": b"the same batch"},
        {"0/8_a.changelog": b"nothing", "1/8_a.changelog": b"nothing"},
    ],
    ids=["no start loads them", "a version written twice", "two partitions"],
)
def test_equal_files_that_are_no_copies(contents: dict[str, bytes]) -> None:
    files = {f"state/0/{name}": content for name, content in contents.items()}
    assert find_copy(list(files), with_checksums(files).get) is None


def test_files_without_checksums_are_not_compared() -> None:
    contents = {f"state/0/0/{version}_a.changelog": b"x" for version in (8, 9)}
    assert find_copy(list(contents), contents.get) is None


def with_checksums(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {checksum_name(name): checksum_of(content) for name, content in contents.items()}
