"""A real web server on this machine that answers as good and bad servers do."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch


@dataclass(kw_only=True)
class Behaviour:
    """What the server holds and how it misbehaves."""

    content: bytes
    ranges: bool = True
    cut_after: int | None = None
    shifted: bool = False
    no_length: bool = False
    status: int = 200
    content_type: str = "application/octet-stream"
    asked: list[str | None] = field(default_factory=list)


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve the content under every path; give the base address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, behaviour)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with patch.dict(os.environ, {"no_proxy": "127.0.0.1"}):
            yield f"http://127.0.0.1:{server.server_port}/files"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(handler: BaseHTTPRequestHandler, behaviour: Behaviour) -> None:
    """Answer one request: whole, from a place on, or not at all."""
    asked = handler.headers.get("Range")
    behaviour.asked.append(asked)
    size = len(behaviour.content)
    start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and behaviour.ranges else 0
    if start >= size and size:
        handler.send_response(416)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    handler.send_response(206 if start else behaviour.status)
    handler.send_header("Content-Type", behaviour.content_type)
    if start:
        place = 1 if behaviour.shifted else start
        handler.send_header("Content-Range", f"bytes {place}-{size - 1}/{size}")
    if not behaviour.no_length:
        handler.send_header("Content-Length", str(size - start))
    handler.end_headers()
    handler.wfile.write(behaviour.content[start : behaviour.cut_after])
