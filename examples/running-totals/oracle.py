"""Writes expected/account-totals.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from pathlib import Path


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    bookings = [json.loads(line) for line in (data / "bookings.jsonl").read_text().splitlines()]
    accounts: dict[str, list[int]] = {}
    for booking in bookings:
        accounts.setdefault(booking["account"], []).append(booking["cents"])
    rows = [
        {
            "account": account,
            "paid_in": sum(cents for cents in booked if cents > 0),
            "paid_out": -sum(cents for cents in booked if cents < 0),
            "largest": max(map(abs, booked)),
        }
        for account, booked in sorted(accounts.items())
    ]
    return {"account-totals": rows}


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
