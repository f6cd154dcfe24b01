"""Decides what became of one request: from an answer, or from an error of the client. Pure.

Of a receiver's own words, messages show only the title of a problem (RFC 9457), which is the same
for all problems of its kind.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import aiohttp

from onceflow.errors import (
    ConfigError,
    CorruptionError,
    OnceflowError,
    OutcomeUnknownError,
    RetriableError,
)
from onceflow_connectors.http.block import HttpBlock
from onceflow_connectors.http.names import origin_of
from onceflow_connectors.http.statuses import Meaning, is_busy, meaning_of, status_text

MAX_TITLE_CHARACTERS = 200
_PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Answer:
    """The answer to a request, as far as it counts.

    Args:
        headers: looked up in any case of letters.
        body: its beginning.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Words:
    """The words of messages about a status, for one kind of file.

    Args:
        what: failed.
        then: follows, before the advice.
        lists: keys of the file that say what statuses mean.
    """

    what: str
    then: str
    lists: str


DELIVERING = Words(
    "the receiver refuses the delivery as a whole",
    "it acknowledged nothing by this; ",
    "`success` or `reject`",
)
ASKING = Words(
    "the service refuses questions as a whole", "nothing of the batch was written; ", "`final`"
)


@dataclass(frozen=True)
class Outcome:
    """The end of a request. Acknowledged, if there is neither refusal nor error.

    Args:
        refusal: why the receiver will never take it.
        error: why it is to be sent again, or never again.
        stops: whether the receiver as a whole is not well, so that others need not be tried.
    """

    refusal: str = ""
    error: OnceflowError | None = None
    stops: bool = False


def outcome_of(answer: Answer, block: HttpBlock, secrets: Iterable[str]) -> Outcome:
    """Judge an answer.

    Args:
        answer: with the beginning of its body.
        block: says which statuses are good, and which ones are about the record.
        secrets: never shown, even if the receiver repeats them.
    """
    problem = _problem(answer)
    meaning = meaning_of(answer.status, block.success, block.reject)
    if meaning is Meaning.ACKNOWLEDGED:
        return Outcome()
    found, subject = answer_text(answer, secrets), block.describe()
    if meaning is Meaning.RETRY:
        what = "the receiver does not take a request now"
        error = RetriableError(what, subject=subject, found=found)
        return Outcome(error=error, stops=is_busy(answer.status))
    if block.idempotency is not None and _is_about_keys(problem):
        return Outcome(error=_key_used_before(subject, found), stops=True)
    if meaning is Meaning.REFUSED:
        return Outcome(refusal=found)
    return Outcome(error=misconfigured(answer, subject, found, DELIVERING), stops=True)


def answer_text(answer: Answer, secrets: Iterable[str]) -> str:
    """An answer for messages: its status, and the title of its problem."""
    title = _shown_title(_problem(answer), secrets)
    return f"{status_text(answer.status)}, {title}" if title else status_text(answer.status)


def failure_of(error: Exception, subject: str, timeout_ms: int) -> OnceflowError:
    """Make our error for one of the client: a request without an answer."""
    found = _found(error)
    if _is_final(error):
        return ConfigError(
            "the two sides do not agree on TLS",
            subject=subject,
            found=found,
            then="nothing was acknowledged; correct `url`, `ca_file`, `certificate_file` and"
            " `key_file`, or the certificate of the receiver",
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        what = "the receiver cannot be reached"
        return RetriableError(what, subject=subject, found=found)
    expected = ""
    if isinstance(error, TimeoutError):
        expected, found = f"an answer within {timeout_ms / 1000:g} s", ""
    what = "a request was not answered"
    then = "it may have had its effect; it is sent again"
    return OutcomeUnknownError(what, subject=subject, expected=expected, found=found, then=then)


def _is_final(error: Exception) -> bool:
    """Whether a handshake fails until one of the two sides is set up differently.

    With TLS 1.3, a receiver that misses our certificate says so too late, or only closes the
    connection. That looks like one that is down.
    """
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return True
    reason = getattr(getattr(error, "os_error", None), "reason", None) or ""
    is_alert = "_ALERT_" in reason and not reason.endswith("ALERT_INTERNAL_ERROR")
    return is_alert or reason == "WRONG_VERSION_NUMBER"


def _found(error: Exception) -> str:
    """An error in the words of the system or of OpenSSL. The client's may repeat the URL."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause: object = error.certificate_error
        return getattr(cause, "verify_message", "") or type(cause).__name__
    inner = getattr(error, "os_error", error)
    if isinstance(inner, ssl.SSLError) and inner.reason:
        return inner.reason
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return type(error).__name__


def misconfigured(answer: Answer, subject: str, found: str, words: Words) -> ConfigError:
    """Make the error for a status that no retry changes, and that is not about one record."""
    then = words.then
    if answer.status // 100 == 3:
        if origin := origin_of(answer.headers.get("Location", "")):
            found += f", to {origin}"
        return ConfigError(
            "the receiver redirects, which is not followed",
            subject=subject,
            found=found,
            then=f"{then}write the address that it redirects to into `url`",
        )
    advice = {
        401: "correct the credentials in `headers_file`",
        403: "have the receiver's operator permit this request",
        404: "correct `url`",
        405: "correct `method` or `url`",
        407: "correct `url`, which leads to a proxy",
        415: "correct `content_type`",
        501: "correct `method`",
    }.get(answer.status, f"correct the `http` block, or name the status in {words.lists}")
    if answer.status < 300:
        then, advice = "", "if it has the record then, name the status in `success`"
    return ConfigError(words.what, subject=subject, found=found, then=then + advice)


def _key_used_before(subject: str, found: str) -> CorruptionError:
    return CorruptionError(
        "the receiver has had other content under the key of a record",
        subject=subject,
        expected="each key with one content",
        found=found,
        then="stopping; ask its operator which request had the key: another program may use the"
        " same keys, or a topic was created again with other records",
    )


def _problem(answer: Answer) -> Mapping[str, object]:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != _PROBLEM:
        return {}
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_about_keys(problem: Mapping[str, object]) -> bool:
    return any("idempotency" in str(problem.get(name, "")).lower() for name in ("type", "title"))


def _shown_title(problem: Mapping[str, object], secrets: Iterable[str]) -> str:
    title = problem.get("title")
    if not isinstance(title, str) or not title.isprintable():
        return ""
    is_secret = any(secret and secret in title for secret in secrets)
    return "" if is_secret else title[:MAX_TITLE_CHARACTERS]
