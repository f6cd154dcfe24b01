"""Writes data/bookings.jsonl: bookings of a few accounts, a second apart."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
BOOKINGS = 200
ACCOUNTS = ["anna", "ben", "carla", "david"]


def bookings() -> list[dict[str, object]]:
    random = Random(1)
    return [
        {
            "account": random.choice(ACCOUNTS),
            "cents": random.randrange(-20_000, 25_000),
            "at": (FIRST + timedelta(seconds=n)).isoformat().replace("+00:00", "Z"),
        }
        for n in range(BOOKINGS)
    ]


def main(folder: Path) -> None:
    (folder / "bookings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bookings()))


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
