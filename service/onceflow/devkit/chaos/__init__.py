"""A proxy before real brokers that holds, loses, repeats and falsifies chosen messages."""

from onceflow.devkit.chaos.rules import Rule
from onceflow.devkit.chaos.thread import ChaosProxy, RunningRule

__all__ = ["ChaosProxy", "Rule", "RunningRule"]
