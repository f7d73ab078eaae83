"""Small HTTP servers on loopback."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def serving(server: HTTPServer) -> Iterator[int]:
    """The port of a server, which answers within the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # seconds between looks for its end
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def answering(status: Callable[[str, Mapping[str, str]], int]) -> Iterator[int]:
    """The port of a server that says true, with the status for a path and headers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status(self.path, dict(self.headers.items())))
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield port
