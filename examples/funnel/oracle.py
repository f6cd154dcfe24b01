"""Writes expected/visit-ends.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path

HALF_AN_HOUR = timedelta(minutes=30)
Action = tuple[str, datetime, str]


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    actions: list[Action] = []
    for line in (data / "shop-actions.jsonl").read_text().splitlines():
        fields = json.loads(line)
        actions.append((fields["user"], datetime.fromisoformat(fields["at"]), fields["kind"]))
    ends = []
    for user, own in groupby(sorted(actions), key=itemgetter(0)):
        for step, at in of_user([(at, kind) for _, at, kind in own]):
            ends.append({"user": user, "last_step": step, "at": shown(at)})
    return {"visit-ends": ends}


def of_user(actions: list[tuple[datetime, str]]) -> Iterator[tuple[str, datetime]]:
    """Take the first view, look for what follows it in half an hour, and go on from there."""
    while views := [at for at, kind in actions if kind == "view"]:
        end = views[0] + HALF_AN_HOUR
        in_time = [(at, kind) for at, kind in actions if views[0] <= at < end]
        cart = next((at for at, kind in in_time if kind == "cart"), None)
        pay = next((at for at, kind in in_time if cart and at > cart and kind == "pay"), None)
        if pay:
            yield "pay", pay
        else:
            yield "cart" if cart else "view", end
        actions = [(at, kind) for at, kind in actions if (at > pay if pay else at >= end)]


def shown(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
