"""A proxy in front of real brokers that holds, loses, repeats and falsifies chosen messages.

It reads plaintext only, listens on 127.0.0.1, and replaces the brokers' addresses by its own in
every answer that tells them.
"""

from tests.chaos.rules import Rule, RunningRule
from tests.chaos.thread import ChaosProxy

__all__ = ["ChaosProxy", "Rule", "RunningRule"]
