"""A token endpoint (RFC 6749, client credentials) that signs as brokers expect."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from onceflow.clock import SystemClock
from tests.support.sites.tls_server import serving

AUDIENCE = "onceflow-brokers"
ISSUER = "https://issuer.test"
LASTS_S = 60
KEY_ID = "key-1"


@dataclass
class TokenEndpoint:
    """Answers every client that knows the secret."""

    secrets: Mapping[str, str]
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    issued: list[str] = field(default_factory=list)
    address: str = ""
    authority: Path = Path()
    moved_to: str = ""

    def write_key_set(self, path: Path) -> Path:
        """Write the keys with which brokers verify signatures (RFC 7517)."""
        numbers = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": KEY_ID, "use": "sig", "alg": "RS256"}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        path.write_text(json.dumps({"keys": [key]}))
        return path

    def token(self, subject: str) -> str:
        now = SystemClock().unix_ms() // 1000
        claims = {"sub": subject, "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + LASTS_S}
        header = {"alg": "RS256", "kid": KEY_ID, "typ": "JWT"}
        signed = f"{_json(header)}.{_json(claims)}"
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.issued.append(subject)
        return f"{signed}.{_text(signature)}"


@contextmanager
def answering(endpoint: TokenEndpoint, folder: Path) -> Iterator[TokenEndpoint]:
    """Answer over TLS inside the block; certificates go into a folder."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            scheme, _, word = self.headers["Authorization"].partition(" ")
            who, _, secret = base64.b64decode(word).decode().partition(":")
            if endpoint.moved_to:
                self.send_response(302)
                self.send_header("Location", endpoint.moved_to)
                self.end_headers()
                return
            is_known = scheme == "Basic" and endpoint.secrets.get(who) == secret
            answer: dict[str, Any] = {"error": "invalid_client"}
            if is_known:
                answer = {
                    "access_token": endpoint.token(who),
                    "token_type": "Bearer",
                    "expires_in": LASTS_S,
                }
            text = json.dumps(answer).encode()
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving(Handler, folder) as (address, endpoint.authority):
        endpoint.address = f"https://{address}/token"
        yield endpoint


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _json(value: Mapping[str, object]) -> str:
    return _text(json.dumps(value).encode())


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))
