"""Writes expected/quoted-trades.jsonl in plain Python: no Spark, nothing of Onceflow."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

REACH = timedelta(seconds=2)


def expected(data: Path) -> dict[str, list[dict[str, object]]]:
    trades, quotes = read(data / "trades.jsonl"), read(data / "quotes.jsonl")
    rows = [
        {
            "trade_id": trade["trade_id"],
            "symbol": trade["symbol"],
            "price_cents": trade["price_cents"],
            "shares": trade["shares"],
            "traded_at": shown(trade["at"]),
            "bid_cents": quote["bid_cents"],
            "ask_cents": quote["ask_cents"],
            "quoted_at": shown(quote["at"]),
        }
        for trade in trades
        for quote in quotes
        if trade["symbol"] == quote["symbol"] and trade["at"] - REACH <= quote["at"] <= trade["at"]
    ]
    return {"quoted-trades": rows}


def read(file: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row | {"at": datetime.fromisoformat(row["at"])} for row in rows]


def shown(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(data: Path, folder: Path) -> None:
    for topic, rows in expected(data).items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data", Path(__file__).parent / "expected")
