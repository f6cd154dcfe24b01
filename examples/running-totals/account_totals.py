"""Totals of an account: payments to it, payments from it, and the largest."""

from typing import Any

from onceflow.aggregates import Aggregate

Totals = tuple[int, int, int | None]


class AccountTotals(Aggregate):
    input = "bigint"
    accumulator = "paid_in decimal(38,0), paid_out decimal(38,0), largest bigint"
    output = accumulator
    samples = (-1250, 99, 0)

    def zero(self) -> Totals:
        return (0, 0, None)

    def add(self, acc: Totals, value: int | None) -> Totals:
        if value is None:
            return acc
        return self.merge(acc, (max(value, 0), max(-value, 0), abs(value)))

    def merge(self, a: Totals, b: Totals) -> Totals:
        largest = max((each for each in (a[2], b[2]) if each is not None), default=None)
        return (a[0] + b[0], a[1] + b[1], largest)

    def result(self, acc: Totals) -> Any:
        return acc
