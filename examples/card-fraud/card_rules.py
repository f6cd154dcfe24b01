"""Rules that look at one card after the other, with what is remembered of each."""

from datetime import timedelta

from onceflow.processing import List, Map, Processor, Value

LARGE = 1000
TRIAL = 2
SILENCE = timedelta(hours=1)


class CardRules(Processor):
    """Three large payments within ten minutes, a trial before a large payment, and silence."""

    key = "card"
    large = List("timestamp", ttl="10 minutes")
    trial = Value("timestamp", ttl="2 minutes")
    shops = Map("string", "bigint")
    output = "card string, rule string, shops int, at timestamp"

    def on_records(self, key, records):
        for payment in records:
            self.shops[payment.shop] = self.shops.get(payment.shop, 0) + 1
            if payment.amount > LARGE:
                self.large.append(payment.at)
                if self.trial.get():
                    yield key, "large after a trial", len(self.shops), payment.at
                if len(self.large) == 3:
                    yield key, "three large payments", len(self.shops), payment.at
            if payment.amount < TRIAL:
                self.trial.set(payment.at)
            self.timers.cancel("silent")
            self.timers.at(payment.at + SILENCE, "silent")

    def on_timer(self, key, at, name):
        yield key, name, len(self.shops), at
        self.shops.clear()
