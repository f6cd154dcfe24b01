"""Aggregates whose parts may be made apart, in any order, and merged."""

from onceflow.aggregates.aggregate import Aggregate
from onceflow.aggregates.counts import Count, Histogram
from onceflow.aggregates.distinct import CollectSet, DistinctCount
from onceflow.aggregates.extremes import LastByTime, Max, Min, TopK
from onceflow.aggregates.moments import Mean, Sum, Variance

__all__ = [
    "Aggregate",
    "CollectSet",
    "Count",
    "DistinctCount",
    "Histogram",
    "LastByTime",
    "Max",
    "Mean",
    "Min",
    "Sum",
    "TopK",
    "Variance",
]
