"""A proxy before real brokers that holds, loses, repeats and falsifies chosen messages."""

from tests.chaos.rules import Rule
from tests.chaos.thread import ChaosProxy, RunningRule

__all__ = ["ChaosProxy", "Rule", "RunningRule"]
