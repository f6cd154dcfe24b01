"""Writes data/trades.jsonl: three instruments that names.csv has, and one that it lacks."""

import json
from pathlib import Path
from random import Random

PRICES = {"AAPL": 27_150, "F": 1_090, "GOOGL": 19_480, "KX": 4_200}
TRADES = 40


def main(folder: Path) -> None:
    random = Random(7)
    lines = []
    for number in range(TRADES):
        symbol = random.choice(sorted(PRICES))
        trade = {
            "trade_id": number + 1,
            "symbol": symbol,
            "price_cents": PRICES[symbol] + random.randrange(-40, 40),
            "shares": 100 * random.randrange(1, 20),
        }
        lines.append(json.dumps(trade) + "\n")
    (folder / "trades.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(__file__).parent / "data")
