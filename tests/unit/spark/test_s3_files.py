"""Checkpoints on S3 as far as no server is needed for them; the rest is in tests/integration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.fs as pafs
import pytest

from onceflow.errors import ConfigError, CorruptionError, OnceflowError, RetriableError
from onceflow.java import s3_jars
from onceflow.runtime.spark import s3_files
from onceflow.runtime.spark.errors import SharedCheckpointError, from_text
from onceflow.runtime.spark.s3_files import keys_of_file, s3_error

PREFIX = "spark.hadoop.fs.s3a."
HADOOP = "org.apache.hadoop.fs.s3a.{}: Writing Object on views/commits/1: {}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation", ConfigError),
        ("AWS Error ACCESS_DENIED during HeadBucket operation: No response body.", ConfigError),
        ("AWS Error UNKNOWN (HTTP status 403) during PutObject operation", ConfigError),
        ("AWS Error NETWORK_CONNECTION during HeadBucket operation: curlCode: 7", RetriableError),
        (HADOOP.format("UnknownStoreException", "the bucket does not exist"), ConfigError),
        (f"java.nio.file.AccessDeniedException: s3a://b/x: {HADOOP}: AccessDenied", ConfigError),
        (HADOOP.format("HttpChannelEOFException", "SdkClientException: no answer"), RetriableError),
        (HADOOP.format("AWSStatus500Exception", "try again"), RetriableError),
    ],
)
def test_what_a_store_says_is_classified(text: str, kind: type[OnceflowError]) -> None:
    assert type(s3_error(text, "s3a://b/x")) is kind
    if "s3a" in text:
        assert type(from_text(text)) is kind


def test_a_lost_or_damaged_object_is_no_fault_of_the_store() -> None:
    text = "java.io.FileNotFoundException: No such file or directory: s3a://b/x/offsets/7"
    assert s3_error(text, "s3a://b/x") is None
    assert isinstance(from_text(text), CorruptionError)


def test_access_to_a_local_file_is_not_taken_for_a_stores() -> None:
    assert from_text("java.nio.file.AccessDeniedException: /data/x: AccessDenied") is None


def test_a_write_that_another_driver_was_ahead_of_is_told_as_such() -> None:
    text = "Multiple streaming queries are concurrently using s3a://b/x/offsets/7."
    assert isinstance(from_text(text), SharedCheckpointError)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of the file system, which has every bucket."""
    options: dict[str, Any] = {}

    class Files:
        def __init__(self, **given: Any) -> None:
            options.update(given)

        def get_file_info(self, _: str) -> SimpleNamespace:
            return SimpleNamespace(type=pafs.FileType.Directory)

    monkeypatch.setattr(pafs, "S3FileSystem", Files)
    return options


def test_settings_of_one_bucket_come_first(asked: dict[str, Any]) -> None:
    conf = {
        f"{PREFIX}endpoint": "http://one:1",
        f"{PREFIX}bucket.b.endpoint": "https://two:2/",
        f"{PREFIX}path.style.access": "true",
        f"{PREFIX}access.key": "id",
    }
    _, root = s3_files.open_s3("s3a://b/some/folder/", conf)
    assert root == "b/some/folder"
    assert (asked["scheme"], asked["endpoint_override"]) == ("https", "two:2")
    assert (asked["access_key"], asked["force_virtual_addressing"]) == ("id", False)


@pytest.mark.parametrize(
    ("conf", "scheme"),
    [({}, "https"), ({f"{PREFIX}connection.ssl.enabled": "false"}, "http")],
)
def test_an_endpoint_without_a_scheme(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], conf: dict[str, str], scheme: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "store:9000")
    s3_files.open_s3("s3a://b/x", conf)
    assert (asked["scheme"], asked["endpoint_override"]) == (scheme, "store:9000")


def test_keys_come_from_the_file_of_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = s%cret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    keys = keys_of_file({})
    assert keys == {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s%cret"}
    assert keys_of_file({f"{PREFIX}access.key": "mine"}) == {}


@pytest.mark.parametrize("text", ["aws_secret_access_key = the-secret", "[other]\nx = 1", None])
def test_a_file_without_keys_is_refused_without_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    file = tmp_path / "credentials"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with pytest.raises(ConfigError, match="keys of the object store cannot be used") as caught:
        keys_of_file({})
    assert "the-secret" not in str(caught.value)


def test_missing_jars_are_named_with_their_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(s3_jars.CLASS_PATH_VARIABLE, raising=False)
    monkeypatch.setattr(s3_jars, "s3_folder", lambda: tmp_path / "s3")
    with pytest.raises(ConfigError, match="onceflow fetch s3"):
        s3_jars.require_s3_jars("s3a://b/x")
    (tmp_path / "s3").mkdir()
    s3_jars.require_s3_jars("s3a://b/x")
