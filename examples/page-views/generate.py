"""Writes data/clicks.jsonl: ten minutes of clicks, up to five seconds out of order."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
CLICKS = 400
PAGES = ["/", "/cart", "/checkout", "/help", "/search"]


def clicks() -> list[dict[str, object]]:
    random = Random(1)
    rows = []
    for i in range(CLICKS):
        # 1.6 s apart on average: the last click closes every window but its own and perhaps one.
        at = FIRST + timedelta(milliseconds=1600 * i - random.randrange(5000) + 5000)
        rows.append(
            {
                "user": f"user-{random.randrange(25)}",
                "page": random.choice(PAGES),
                "ms": random.randrange(50, 30_000),
                "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            }
        )
    return rows


def main(folder: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in clicks())
    (folder / "clicks.jsonl").write_text(lines)


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
