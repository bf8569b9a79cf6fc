"""A web server of this process: files by path, answers that break off, answers that fail a number of times."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Web:
    """files: path -> content.  short: paths whose answers break off half-way.  failing: path -> how often it fails first."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    short: set[str] = field(default_factory=set)
    failing: dict[str, int] = field(default_factory=dict)


@contextmanager
def serve() -> Iterator[Web]:
    """Serves until the end of the with."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if web.failing.get(path, 0) > 0:
                web.failing[path] -= 1
                self.send_error(503)
            elif path not in web.files:
                self.send_error(404)
            else:
                body = web.files[path]
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if path in web.short else body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    web.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
