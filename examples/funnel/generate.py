"""Writes data/shop-actions.jsonl: thirty users for four hours, up to 50 s out of order."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)
END = FIRST + timedelta(hours=4)
USERS = 30


def actions() -> list[dict[str, object]]:
    random = Random(8)
    sent = []
    for user in range(USERS):
        at = FIRST + timedelta(milliseconds=random.randrange(3_600_000))
        while at < END:
            kind = random.choice(["view", "view", "cart", "cart", "pay"])
            delay = timedelta(milliseconds=random.randrange(50_000))
            sent.append((at + delay, f"user-{user}", kind, at))
            pause_ms = random.choice([60_000, 300_000, 900_000, 2_400_000])
            at += timedelta(milliseconds=pause_ms + random.randrange(30_000))
    # A last action, long after all others: event time passes every other visit's end.
    last = END + timedelta(hours=2)
    sent.append((last, f"user-{USERS}", "cart", last))
    return [
        {
            "user": user,
            "kind": kind,
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        for _, user, kind, at in sorted(sent)
    ]


def main(folder: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in actions())
    (folder / "shop-actions.jsonl").write_text(lines)


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
