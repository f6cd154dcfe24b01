"""Executor pods of an earlier start are deleted, against a Kubernetes API of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from onceflow.serve.leftovers import delete_leftovers
from tests.support.sites.certificates import Authority
from tests.support.sites.tls_server import serving

SELECTOR = "app=a,role=executor"
TOKEN = "token-of-the-account"


@dataclass
class Api:
    """Pods of a namespace, by name with their labels, and how it answers."""

    pods: dict[str, dict[str, str]]
    address: str = ""
    status: int = 200
    text: bytes = b""
    asked: list[str] = field(default_factory=list)

    def delete(self, path: str, token: str) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.text or self.status != 200:
            return self.status, self.text or json.dumps({"message": "no"}).encode()
        if token != f"Bearer {TOKEN}":
            return 401, json.dumps({"message": "Unauthorized"}).encode()
        url = urlsplit(path)
        assert url.path == "/api/v1/namespaces/streams/pods"
        (selector,) = parse_qs(url.query)["labelSelector"]
        wanted = dict(pair.split("=") for pair in selector.split(","))
        found = [name for name, labels in self.pods.items() if wanted.items() <= labels.items()]
        for name in found:
            del self.pods[name]
        return 200, json.dumps({"items": [{"metadata": {"name": n}} for n in found]}).encode()


@contextmanager
def answering(api: Api, folder: Path) -> Iterator[Path]:
    """Answer over TLS inside the block; gives a folder as the kubelet mounts it."""

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            status, text = api.delete(self.path, self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    account = folder / "account"
    account.mkdir()
    (account / "token").write_text(f"{TOKEN}\n")
    (account / "namespace").write_text("streams")
    with serving(Handler, folder / "keys") as (api.address, authority):
        (account / "ca.crt").write_bytes(authority.read_bytes())
        yield account


def deleted_by(api: Api, account: Path) -> list[tuple[str, dict[str, Any]]]:
    told: list[tuple[str, dict[str, Any]]] = []
    delete_leftovers(
        SELECTOR, lambda event, **facts: told.append((event, facts)), api.address, account
    )
    return told


def test_executors_of_the_release_go_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy is for what lies outside of the cluster.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    pods = {
        "a-exec-1": {"app": "a", "role": "executor", "more": "b"},
        "a-exec-2": {"app": "a", "role": "executor"},
        "a-0": {"app": "a", "role": "driver"},
        "b-exec-1": {"app": "b", "role": "executor"},
    }
    api = Api(pods)
    with answering(api, tmp_path) as account:
        first, second = deleted_by(api, account), deleted_by(api, account)

    assert first == [("leftovers", {"deleted": ["a-exec-1", "a-exec-2"]})]
    assert second == []
    assert set(pods) == {"a-0", "b-exec-1"}


@pytest.mark.parametrize(
    ("status", "text", "told"), [(403, b"", "403 no"), (500, b"<html>", "JSONDecodeError")]
)
def test_a_driver_starts_although_they_stay(
    status: int, text: bytes, told: str, tmp_path: Path
) -> None:
    api = Api({}, status=status, text=text)
    with answering(api, tmp_path) as account:
        ((event, facts),) = deleted_by(api, account)

    assert len(api.asked) == 1
    assert event == "warning"
    assert "executors of an earlier start stay" in facts["text"]
    assert told in facts["text"]


def test_nobody_else_is_taken_for_kubernetes(tmp_path: Path) -> None:
    api = Api({})
    with answering(api, tmp_path) as account:
        other = Authority.in_folder(tmp_path / "other")
        (account / "ca.crt").write_bytes(other.certificate.read_bytes())
        ((event, facts),) = deleted_by(api, account)

    assert (api.asked, event) == ([], "warning")
    assert "certificate verify failed" in facts["text"]
    assert TOKEN not in facts["text"]


def test_a_pod_without_an_account_starts(tmp_path: Path) -> None:
    ((event, facts),) = deleted_by(Api({}, address="127.0.0.1:1"), tmp_path)

    assert (event, "FileNotFoundError" in facts["text"]) == ("warning", True)
