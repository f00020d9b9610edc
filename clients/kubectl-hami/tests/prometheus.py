"""
A Prometheus of recorded answers, on a real socket.
"""

from http.server import BaseHTTPRequestHandler, HTTPServer


class Prometheus(HTTPServer):
    """A server that answers each query by its metric, and all others with the same bytes."""

    answer = b""
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens, as a person writes it."""
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Prometheus

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(self.server.status)
        self.end_headers()
        answers = (answer for metric, answer in self.server.answers.items() if metric in self.path)
        self.wfile.write(next(answers, self.server.answer))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        pass
