"""Writes expected/card-alerts.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path

LATENESS = timedelta(seconds=30)
Payment = tuple[str, datetime, str, float]


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    payments: list[Payment] = []
    for line in (data / "payments.jsonl").read_text().splitlines():
        fields = json.loads(line)
        at = datetime.fromisoformat(fields["at"])
        payments.append((fields["card"], at, fields["shop"], fields["amount"]))
    passed = max(at for _, at, _, _ in payments) - LATENESS
    alerts = []
    for card, own in groupby(sorted(payments), key=itemgetter(0)):
        for rule, shops, at in of_card([p for p in own if p[1] <= passed], passed):
            alerts.append({"card": card, "rule": rule, "shops": shops, "at": shown(at)})
    return {"card-alerts": alerts}


def of_card(payments: list[Payment], passed: datetime) -> Iterator[tuple[str, int, datetime]]:
    """Look at all earlier payments at each payment: slow, and plain."""
    large: list[datetime] = []
    small: list[datetime] = []
    shops: set[str] = set()
    for number, (_, at, shop, amount) in enumerate(payments, start=1):
        following = payments[number][1] if number < len(payments) else None
        shops.add(shop)
        if amount > 1000:
            large.append(at)
            if any(at < trial + timedelta(minutes=2) for trial in small):
                yield "large after a trial", len(shops), at
            if sum(at < other + timedelta(minutes=10) for other in large) == 3:
                yield "three large payments", len(shops), at
        if amount < 2:
            small.append(at)
        silent = at + timedelta(hours=1)
        if silent <= passed and (following is None or silent <= following):
            yield "silent", len(shops), silent
            shops = set()


def shown(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
