"""Writes data/movements.jsonl: eight items for an hour, up to 20 s out of order."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 3, 6, 0, tzinfo=UTC)
END = FIRST + timedelta(hours=1)
ITEMS = ["bolt", "nut", "washer", "screw", "hinge", "hook", "nail", "plug"]


def movements() -> list[dict[str, object]]:
    random = Random(3)
    sent = []
    for item in ITEMS:
        at = FIRST + timedelta(milliseconds=random.randrange(60_000))
        while at < END:
            delay = timedelta(milliseconds=random.randrange(20_000))
            sent.append((at + delay, item, random.choice([-40, -20, -10, -5, 30, 50]), at))
            at += timedelta(milliseconds=random.randrange(1_000, 240_000))
    # A last movement, long after all others: event time passes them.
    sent.append((END + timedelta(hours=1), "rope", 1, END + timedelta(hours=1)))
    return [
        {
            "item": item,
            "quantity": quantity,
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        for _, item, quantity, at in sorted(sent)
    ]


def main(folder: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in movements())
    (folder / "movements.jsonl").write_text(lines)


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
