"""An HTTP server over TLS, with a certificate of its own authority."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.support.sites.certificates import HERE, Authority


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], folder: Path) -> Iterator[tuple[str, Path]]:
    """Serve inside the block; gives host and port, and the authority's certificate in a folder."""
    authority = Authority.in_folder(folder)
    pair = authority.issue("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer((HERE, 0), handler)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{HERE}:{server.server_port}", authority.certificate
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
