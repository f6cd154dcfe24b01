"""Who may post: bearer tokens with roles, as the control API has them.

A wrong token costs a caller nothing but the answer: it is 256 random bits, which cannot be guessed,
and behind a load balancer all callers share one address.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onceflow.clock import Clock
from onceflow.control.tokens import Caller, Role, digest_of, read_tokens
from onceflow.errors import ConfigError
from onceflow.gateway.model import PostedTopic
from onceflow.gateway.posts import Refusal

FRESH_S = 1.0
"""How old the tokens may be that a post is let in by."""
ANYONE = Caller("", Role.WRITE)
"""The caller if there are no tokens."""


@dataclass
class Callers:
    """Knows callers by their tokens.

    Args:
        file: with the tokens, read again when it is older than `FRESH_S`; None lets all in.

    Raises:
        ConfigError: as `read_tokens`.
    """

    file: Path | None
    clock: Clock
    _known: Mapping[str, Caller] = field(default_factory=dict)
    _stale_at_s: float = -math.inf

    def __post_init__(self) -> None:
        if self.file is not None:
            self._read(self.file)

    def caller_of(self, authorization: str) -> Caller:
        """Who sends a request with this header.

        Raises:
            Refusal: 401, unknown; 503, the tokens cannot be read.
        """
        if self.file is None:
            return ANYONE
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Refusal(401, "a bearer token is needed")
        if self.clock.monotonic_s() >= self._stale_at_s:
            try:
                self._read(self.file)
            except ConfigError:
                raise Refusal(503, "the tokens cannot be read", 5) from None
        caller = self._known.get(digest_of(token.strip()))
        if caller is None:
            raise Refusal(401, "no such token")
        return caller

    def _read(self, file: Path) -> None:
        self._known = dict(read_tokens(file))
        self._stale_at_s = self.clock.monotonic_s() + FRESH_S


def require_may_post(caller: Caller, topic: str, block: PostedTopic) -> None:
    """Let a caller post to a topic.

    Raises:
        Refusal: 403, it may not.
    """
    if not caller.role.covers(Role.WRITE):
        raise Refusal(403, f"{caller.name} may {caller.role}; a post needs the role write")
    if block.writers is not None and caller.name not in block.writers:
        raise Refusal(403, f"{caller.name or 'anyone'} may not post to {topic}")
