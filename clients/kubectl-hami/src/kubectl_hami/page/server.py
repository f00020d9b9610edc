"""
The web server of the page: loopback only, read only.

    GET /?token=…             gives the browser a cookie
    GET /                     the page
    GET /static/…             its files
    GET /api/picture          the cluster as one value
    GET /api/pods/NS/NAME     one Pod's explanation, Events and history
    GET /api/nodes/NAME       the use over time of a Node and its devices
    GET /api/doctor           the checks
    GET /api/grants           what was promised and what is real
    GET /api/usage/OF?span=   device-hours of `namespaces`, `pods` or `models`
    POST /api/simulate        what the Pods of the manifest in the body would get; ?namespace= and ?node=

Every answer forbids scripts, styles and connections other than this server's own, so that a text of a tenant does
nothing even if the page should show it wrongly. Neighbours: `gate` decides who is answered, `questions` has the
answers.
"""

import hashlib
import mimetypes
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from importlib.resources.abc import Traversable
from urllib.parse import parse_qs, unquote, urlsplit

from hamicommon.errors import HamiError
from kubectl_hami.page.gate import LOOPBACK, Gate
from kubectl_hami.page.questions import Questions

SOCKET_SECONDS = 30
MANIFEST_LIMIT_BYTES = 1 << 20
_LENGTH_DIGITS = 20
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
STRANGER = "Open the address that kubectl hami ui printed: it has the token for this browser.\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server sends."""

    status: HTTPStatus
    body: bytes = b""
    type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] | None = None


def serve(questions: Questions, port: int = 0) -> tuple[ThreadingHTTPServer, Gate]:
    """
    Return a server that listens on *port* of loopback, not yet running, and the gate with its address.

    port   0 for any free one
    Raises: OSError if the port is taken.
    """
    server = _Server((LOOPBACK, port), _Handler)
    server.questions = questions
    server.static = dict(_static())
    server.gate = Gate(server.server_port, secrets.token_urlsafe(24))
    return server, server.gate


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    """A browser asks for all files at once; what finds no place would wait a second."""
    questions: Questions
    static: Mapping[str, Answer]
    gate: Gate

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that closes a connection early is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SOCKET_SECONDS
    protocol_version = "HTTP/1.1"
    server_version = "kubectl-hami"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one question."""
        self._send(self._checked(self._known))

    def do_POST(self) -> None:
        """Answer a question about the text in the body, which changes nothing."""
        # A body that was refused is still in the connection.
        self._send(replace(self._checked(self._sent), headers={"Connection": "close"}))

    def _send(self, answer: Answer) -> None:
        headers = {"Content-Type": answer.type, "Content-Length": str(len(answer.body)), **HEADERS}
        self.send_response(answer.status)
        for name, value in {**headers, **(answer.headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        """Say nothing: the address of the page has the token."""

    def _checked(self, answer: Callable[[str, Mapping[str, list[str]]], Answer]) -> Answer:
        """Return what *answer* returns of path and query, if the gate lets the request in."""
        gate = self.server.gate
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if not gate.knows_host(self.headers.get("Host", "")):
            return _text(HTTPStatus.MISDIRECTED_REQUEST, f"This server answers as {LOOPBACK}:{gate.port} only.\n")
        if parts.path == "/" and gate.knows_token(query.get("token", [""])[0]):
            # The browser keeps the part behind #, which says what to show.
            return Answer(HTTPStatus.SEE_OTHER, headers={"Location": "/", "Set-Cookie": gate.cookie})
        if not gate.knows_cookie(self.headers.get("Cookie", "")):
            return _text(HTTPStatus.FORBIDDEN, STRANGER)
        try:
            return answer(parts.path, query)
        except HamiError as error:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n")

    def _known(self, path: str, query: Mapping[str, list[str]]) -> Answer:
        static = self.server.static.get(path)
        if static is not None:
            return static
        questions = self.server.questions
        match path.split("/")[1:]:
            case ["api", "picture"]:
                return self._fresh(questions.picture())
            case ["api", "doctor"]:
                return _json(questions.doctor())
            case ["api", "grants"]:
                return _json(questions.grants())
            case ["api", "usage", of]:
                return _json(questions.usage(of, query.get("span", [""])[0]))
            case ["api", "nodes", name]:
                return _json(questions.node(unquote(name)))
            case ["api", "pods", namespace, name]:
                return _json(questions.story(unquote(namespace), unquote(name)))
        return _text(HTTPStatus.NOT_FOUND, f"There is no {path} here.\n")

    def _sent(self, path: str, query: Mapping[str, list[str]]) -> Answer:
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isdecimal() and len(length) < _LENGTH_DIGITS else MANIFEST_LIMIT_BYTES + 1
        if path != "/api/simulate":
            return _text(HTTPStatus.NOT_FOUND, f"Nothing can be sent to {path}.\n")
        if not self.server.gate.knows_origin(self.headers.get("Origin", "")):
            return _text(HTTPStatus.FORBIDDEN, STRANGER)
        if size > MANIFEST_LIMIT_BYTES:
            text = f"A manifest must be at most {MANIFEST_LIMIT_BYTES} bytes long, with Content-Length.\n"
            return _text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        manifest = self.rfile.read(size).decode(errors="replace")
        namespace = query.get("namespace", [""])[0]
        return _json(self.server.questions.simulation(manifest, namespace, query.get("node", [])))

    def _fresh(self, body: bytes) -> Answer:
        """Return *body*, or nothing if the browser has it already."""
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == tag:
            return Answer(HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
        return _json(body, {"ETag": tag})


def _static() -> Iterator[tuple[str, Answer]]:
    """Yield the path and content of each file of the page. What is not among them is not served."""
    root = files("kubectl_hami.page") / "static"
    for path, file in _walk(root, ""):
        name = "/" if path == "/index.html" else f"/static{path}"
        kind = "text/javascript" if path.endswith(".js") else mimetypes.guess_type(path)[0] or "text/plain"
        yield name, Answer(HTTPStatus.OK, file.read_bytes(), f"{kind}; charset=utf-8")


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        here = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, here)
        else:
            yield here, entry


def _text(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, text.encode())


def _json(body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(HTTPStatus.OK, body, "application/json", headers)
