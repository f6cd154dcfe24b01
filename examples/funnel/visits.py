"""How far users come, from looking to paying, and who gives up."""

from datetime import timedelta

from onceflow.processing import Processor, Value

TIME_TO_PAY = timedelta(minutes=30)
NEXT = {None: "view", "view": "cart", "cart": "pay"}


class Funnel(Processor):
    """A visit begins with a view; the next steps count in their order, for thirty minutes."""

    key = "user"
    step = Value("string")
    output = "user string, last_step string, at timestamp"

    def on_records(self, key, records):
        for action in records:
            if action.kind != NEXT[self.step.get()]:
                continue
            if action.kind == "view":
                self.timers.at(action.at + TIME_TO_PAY, "too late")
            if action.kind == "pay":
                yield key, "pay", action.at
                self.timers.cancel("too late")
                self.step.clear()
            else:
                self.step.set(action.kind)

    def on_timer(self, key, at, name):
        yield key, self.step.get(), at
        self.step.clear()
