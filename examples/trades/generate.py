"""Writes data/trades.jsonl and data/quotes.jsonl: three symbols, four minutes, out of order."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

FIRST = datetime(2026, 11, 2, 14, 30, tzinfo=UTC)
SYMBOLS = {"AAPL": 27_150, "F": 1_090, "GOOGL": 19_480}
QUOTES = 480
TRADES = 120
DURATION_MS = 240_000


def generated() -> dict[str, list[dict[str, object]]]:
    random = Random(4)
    quotes, trades = [], []
    for number in range(QUOTES):
        symbol = random.choice(sorted(SYMBOLS))
        bid_cents = SYMBOLS[symbol] + random.randrange(-40, 40)
        quotes.append(
            {
                "symbol": symbol,
                "bid_cents": bid_cents,
                "ask_cents": bid_cents + random.randrange(1, 5),
                "at": instant(random, number, QUOTES),
            }
        )
    for number in range(TRADES):
        symbol = random.choice(sorted(SYMBOLS))
        trades.append(
            {
                "trade_id": number + 1,
                "symbol": symbol,
                "price_cents": SYMBOLS[symbol] + random.randrange(-40, 40),
                "shares": 100 * random.randrange(1, 20),
                "at": instant(random, number, TRADES),
            }
        )
    return {"quotes": quotes, "trades": trades}


def instant(random: Random, number: int, count: int) -> str:
    """Spread over the duration, each up to two seconds away from its turn."""
    at_ms = DURATION_MS * number // count + random.randrange(2_000)
    at = FIRST + timedelta(milliseconds=at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main(folder: Path) -> None:
    for topic, rows in generated().items():
        (folder / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
