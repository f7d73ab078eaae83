"""Small HTTP servers on loopback."""

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit


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


# ----------------------------------------------------------------------------------------------------------------------
# A proxy before a server that speaks S3, which damages its answers.


class Answer(NamedTuple):
    """An answer as it is sent; the connection is closed after a body that is shorter than the head says."""

    head: bytes
    body: bytes

    @property
    def says_its_length(self) -> bool:
        """Whether the head has the length of the body."""
        return f"\r\ncontent-length: {len(self.body)}\r\n".encode() in self.head.lower()

    def with_header(self, name: str, value: str) -> "Answer":
        """The answer with another value of a header."""
        lines = [line for line in self.head.split(b"\r\n") if not line.lower().startswith(f"{name.lower()}:".encode())]
        lines.insert(1, f"{name}: {value}".encode())
        return self._replace(head=b"\r\n".join(lines))


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    headers: dict[str, str]


Damage = Callable[[Request, Answer], Answer]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


@contextmanager
def damaged_answers(endpoint: str, damage: Damage, etags: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a proxy that passes every answer of a server through `damage`, and replaces `etags` in requests."""
    without = etags or {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, without.get(value, value))
            connection.endheaders(data or None)
            response = connection.getresponse()
            body = response.read()
            connection.close()
            headers = {name.title(): value for name, value in response.getheaders()}
            headers.pop("Transfer-Encoding", None)
            headers.pop("Connection", None)
            if self.command != "HEAD":
                headers["Content-Length"] = str(len(body))
            lines = [f"HTTP/1.1 {response.status} {response.reason}", *map(": ".join, headers.items()), "", ""]
            answer = Answer("\r\n".join(lines).encode("latin-1"), body)
            sent = damage(Request(self.command, self.path, dict(self.headers.items())), answer)
            self.close_connection = len(sent.body) < len(answer.body) and not sent.says_its_length
            with suppress(OSError):
                self.wfile.write(sent.head + sent.body)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with serving(_Server(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}"
