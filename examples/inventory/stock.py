"""The stock of each item, after each movement."""

from onceflow.processing import Processor, Value


class Stock(Processor):
    """Adds and removes; a movement that takes more than there is changes nothing."""

    key = "item"
    stock = Value("bigint", default=0)
    output = "item string, stock bigint, at timestamp"

    def on_records(self, key, records):
        for movement in records:
            left = self.stock.get() + movement.quantity
            if left < 0:
                raise ValueError(f"{-movement.quantity} taken, {self.stock.get()} there")
            self.stock.set(left)
            yield key, left, movement.at
