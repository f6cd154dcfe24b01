"""One micro-batch: execute, judge, write or skip or put aside, report."""
