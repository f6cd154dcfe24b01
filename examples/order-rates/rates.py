"""A service that knows exchange rates: `python rates.py [PORT]`. Answers `GET /rates/USD?day=...`.

It prints a line for each question, so that you can see how often it is asked.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

RATES = {"CHF": "1.041700", "GBP": "1.193200", "JPY": "0.006180", "USD": "0.924500"}


class Rates(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        currency = unquote(parts.path.rpartition("/")[2])
        if currency in RATES:
            day = parse_qs(parts.query).get("day", [None])[0]
            # A number with its digits, which `json.dumps` would shorten.
            text = json.dumps({"eur": 0, "fixed_on": day, "source": "a book"})
            self.answer(200, text.replace('"eur": 0', f'"eur": {RATES[currency]}'))
        else:
            self.answer(404, json.dumps({"title": "unknown currency"}))

    def do_OPTIONS(self) -> None:
        self.answer(200, "{}")

    def answer(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8085
    ThreadingHTTPServer(("127.0.0.1", port), Rates).serve_forever()
