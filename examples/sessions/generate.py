"""Writes data/actions.jsonl: ten users who come and go for two hours, up to 20 s out of order."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 1, 18, 0, tzinfo=UTC)
END = FIRST + timedelta(hours=2)
USERS = 10


def actions() -> list[dict[str, object]]:
    random = Random(3)
    sent = []
    for user in range(USERS):
        at = FIRST + timedelta(milliseconds=random.randrange(600_000))
        while at < END:
            action = random.choice(["look", "look", "look", "search", "buy"])
            delay = timedelta(milliseconds=random.randrange(20_000))
            sent.append((at + delay, user, action, at))
            # Mostly within a session; sometimes a pause that ends it.
            pause_ms = random.choice([20_000, 60_000, 120_000, 280_000, 320_000, 1_500_000])
            at += timedelta(milliseconds=pause_ms + random.randrange(10_000))
    # A last visitor, long after all others: closes every session but its own.
    sent.append((END + timedelta(minutes=10), USERS, "look", END + timedelta(minutes=10)))
    return [
        {
            "user": f"user-{user}",
            "action": action,
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        for _, user, action, at in sorted(sent)
    ]


def main(folder: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in actions())
    (folder / "actions.jsonl").write_text(lines)


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
