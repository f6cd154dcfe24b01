"""Writes data/payments.jsonl: twelve cards for three hours, up to 20 s out of order."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
END = FIRST + timedelta(hours=3)
CARDS = 12
SHOPS = ["bakery", "cinema", "jeweller", "garage"]
AMOUNTS = [1.0, 8.5, 8.5, 25.0, 140.0, 1200.0, 2500.0]


def payments() -> list[dict[str, object]]:
    random = Random(5)
    sent = []
    for card in range(CARDS):
        at = FIRST + timedelta(milliseconds=random.randrange(600_000))
        while at < END:
            delay = timedelta(milliseconds=random.randrange(20_000))
            sent.append((at + delay, card, random.choice(SHOPS), random.choice(AMOUNTS), at))
            # Sometimes a silence of more than an hour.
            pause_ms = random.choice([30_000, 90_000, 90_000, 240_000, 900_000, 4_000_000])
            at += timedelta(milliseconds=pause_ms + random.randrange(10_000))
    # A last payment, long after all others: event time passes every timer but its own.
    sent.append((END + timedelta(hours=2), CARDS, "cinema", 8.5, END + timedelta(hours=2)))
    return [
        {
            "card": f"card-{card}",
            "shop": shop,
            "amount": amount,
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        for _, card, shop, amount, at in sorted(sent)
    ]


def main(folder: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in payments())
    (folder / "payments.jsonl").write_text(lines)


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
