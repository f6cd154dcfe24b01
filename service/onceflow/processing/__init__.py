"""Processors: Python classes that handle the records of one key, with state and timers."""

from onceflow.processing.aggregated import Aggregated
from onceflow.processing.harness import ProcessorHarness
from onceflow.processing.processor import Processor
from onceflow.processing.state import List, Map, Value

__all__ = ["Aggregated", "List", "Map", "Processor", "ProcessorHarness", "Value"]
