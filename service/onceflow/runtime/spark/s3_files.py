"""Checkpoints on S3: how our own code reaches them, by the settings that Spark reaches them with.

Spark is not up yet when a start looks at its checkpoint, so that goes by Arrow and not by Hadoop.
Both read `spark.hadoop.fs.s3a.*` and the variables of the environment that AWS documents.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.fs as pafs

from onceflow.errors import ConfigError, OnceflowError, RetriableError

SCHEME = "s3a://"
REQUESTS: Mapping[str, str] = {
    # Hadoop's own would let a batch hang for a quarter of an hour on an address that is gone.
    "spark.hadoop.fs.s3a.connection.establish.timeout": "5s",
    "spark.hadoop.fs.s3a.attempts.maximum": "3",
    "spark.hadoop.fs.s3a.retry.limit": "4",
}
"""How long Spark goes on trying, unless a user says otherwise."""
_CONNECT_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 20.0
_ATTEMPTS = 3
_PREFIX = "spark.hadoop.fs.s3a."
_ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"
"""Spark takes it for `fs.s3a.endpoint`."""
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")

_KEYS_VARIABLE = "AWS_SHARED_CREDENTIALS_FILE"
_PROFILE_VARIABLE = "AWS_PROFILE"
_KEYS_IN_FILE: Mapping[str, str] = {
    "aws_access_key_id": "fs.s3a.access.key",
    "aws_secret_access_key": "fs.s3a.secret.key",
    "aws_session_token": "fs.s3a.session.token",
}

_NO_BUCKET = ("NO_SUCH_BUCKET", "NoSuchBucket", "UnknownStoreException")
_REFUSED = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_SIGNATURE",
    "EXPIRED_TOKEN",
    "HTTP status 401",
    "HTTP status 403",
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "NoAuthWithAWSException",
    "XAdminUserNotFound",
)
_UNREACHABLE = (
    "AWS Error",
    "SdkClientException",
    "HttpChannelEOFException",
    "ConnectTimeoutException",
    "fs.s3a.AWS",
)
"""Some name no cause: what else an object store says may be over at the next start."""


def open_s3(location: str, conf: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    """The file system of a location, and the path in it, by Spark's settings of S3A.

    Raises:
        ConfigError: no such bucket, or the keys are refused.
        RetriableError: no server answers.
    """
    root = location.removeprefix(SCHEME).rstrip("/")
    bucket = root.partition("/")[0]
    try:
        files = pafs.S3FileSystem(**_options(bucket, conf))
        is_there = files.get_file_info(bucket).type == pafs.FileType.Directory
    except (OSError, ValueError) as error:
        raise s3_error(str(error), location) or error from error
    if not is_there:
        raise _no_bucket(location, "nothing of this name")
    return files, root


def keys_of_file(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Hadoop's settings with the keys of the file that `AWS_SHARED_CREDENTIALS_FILE` names.

    Hadoop itself does not read it. They go into a context that runs, and so neither to the command
    line of the JVM, which anybody on the machine may read, nor to the variables of executors. Keys
    in Spark's settings come first.

    Raises:
        ConfigError: it cannot be read, or has no such profile.
    """
    file, profile = os.environ.get(_KEYS_VARIABLE), os.environ.get(_PROFILE_VARIABLE, "default")
    if file is None or f"{_PREFIX}access.key" in conf:
        return {}
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(Path(file).read_text(encoding="utf-8"))
        section = parser[profile]
        return {name: section[key] for key, name in _KEYS_IN_FILE.items() if key in section}
    # The parser's own words may have a line of the file.
    except (OSError, KeyError, ValueError, configparser.Error) as error:
        raise ConfigError(
            "the file with the keys of the object store cannot be used",
            subject=file,
            expected=f"[{profile}] with aws_access_key_id and aws_secret_access_key",
            found=type(error).__name__,
            then=f"correct it, or unset {_KEYS_VARIABLE}",
        ) from None


def s3_error(text: str, location: str) -> OnceflowError | None:
    """Find in a text of Arrow or Hadoop what a store refused or did not answer; None if neither."""
    if found := _line_with(_NO_BUCKET, text):
        return _no_bucket(location, found)
    if found := _line_with(_REFUSED, text):
        return ConfigError(
            "the object store refuses these keys, or they may not do this",
            subject=location,
            expected="spark.hadoop.fs.s3a.access.key and .secret.key, or AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, which may list, read, write and delete",
            found=found,
            then="nothing is lost; correct them, and start again",
        )
    if found := _line_with(_UNREACHABLE, text):
        return RetriableError(
            "the object store does not answer, or cannot do it now",
            subject=location,
            expected="an answer from spark.hadoop.fs.s3a.endpoint, or from AWS if that is not set",
            found=found,
            then="nothing is lost; start again",
        )
    return None


def _no_bucket(location: str, found: str) -> ConfigError:
    return ConfigError(
        "there is no such bucket, or these keys do not see it",
        subject=location,
        expected="a bucket that exists: it is never made",
        found=found,
        then="nothing was written; correct `checkpoint`, spark.hadoop.fs.s3a.endpoint or the keys",
    )


def _line_with(marks: Sequence[str], text: str) -> str:
    """The beginning of the first line that has one of them; empty if none has."""
    lines = (line.strip() for line in text.splitlines() if any(mark in line for mark in marks))
    return next(lines, "")[:300]


def _options(bucket: str, conf: Mapping[str, str]) -> dict[str, object]:
    def setting(name: str) -> str | None:
        # One bucket may have settings of its own.
        return conf.get(f"{_PREFIX}bucket.{bucket}.{name}", conf.get(f"{_PREFIX}{name}")) or None

    endpoint = setting("endpoint") or os.environ.get(_ENDPOINT_VARIABLE)
    options: dict[str, object] = {
        "access_key": setting("access.key"),
        "secret_key": setting("secret.key"),
        "session_token": setting("session.token"),
        "region": setting("endpoint.region"),
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "request_timeout": _REQUEST_TIMEOUT_S,
        "retry_strategy": pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        "background_writes": False,
        # Else a file of some bytes takes three requests in place of one.
        "allow_delayed_open": True,
    }
    if endpoint is not None:
        is_plain = setting("connection.ssl.enabled") == "false"
        scheme, separator, address = endpoint.partition("://")
        options["scheme"] = scheme if separator else "http" if is_plain else "https"
        options["endpoint_override"] = (address if separator else endpoint).rstrip("/")
        options["force_virtual_addressing"] = setting("path.style.access") != "true"
    elif options["region"] is None and not any(name in os.environ for name in _REGION_VARIABLES):
        options["region"] = pafs.resolve_s3_region(bucket)
    return options
