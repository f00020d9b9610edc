"""
The page's server answers the person who started it, and nobody else.
"""

import http.client
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from .page import Told
from .pictures import a_device, a_node, a_picture

PATHS = (
    "/",
    "/static/js/main.js",
    "/api/picture",
    "/api/pods/default/train",
    "/api/nodes/node-a",
    "/api/doctor",
    "/api/grants",
    "/api/usage/pods",
)


class Client:
    """Asks a server as any program of this machine can."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.port = parts.port or 0
        self.token = parse_qs(parts.query)["token"][0]

    def get(self, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        """Return the answer, read."""
        return self._answer(method, path, None, headers)

    def post(self, path: str, body: bytes, **headers: str) -> http.client.HTTPResponse:
        """Return the answer to what is sent, read."""
        return self._answer("POST", path, body, headers)

    def _answer(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, body, {"Host": f"127.0.0.1:{self.port}", **headers})
        answer = connection.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        connection.close()
        return answer

    @property
    def cookie(self) -> str:
        """The cookie of a browser that opened the address."""
        return f"hami-ui-{self.port}={self.token}"


@pytest.fixture
def client(address: str, told: Told) -> Client:
    """A client of a page with one device."""
    told.picture = a_picture(a_node("node-a", a_device("node-a", 0)))
    return Client(address)


def test_the_address_gives_the_browser_a_cookie_and_hides_the_token(client: Client) -> None:
    """The cookie is not for scripts, nor for requests that other sites start."""
    answer = client.get(f"/?token={client.token}")

    assert (303, "/") == (answer.status, answer.getheader("Location"))
    assert f"{client.cookie}; HttpOnly; SameSite=Strict; Path=/" == answer.getheader("Set-Cookie")


@pytest.mark.parametrize("path", PATHS)
def test_who_has_the_cookie_is_answered(client: Client, path: str) -> None:
    """The page, its files and the questions."""
    assert 200 == client.get(path, Cookie=client.cookie).status


@pytest.mark.parametrize(
    "others",
    ['ui={{"theme": "dark"}}', "a[b]=1", "flag", "prefs=\x80", "hami-ui-1=other", "hami-ui-{port}=of-another-program"],
)
def test_cookies_of_other_programs_on_this_host_lock_nobody_out(client: Client, others: str) -> None:
    """Cookies do not know ports, so a browser sends those of every program on 127.0.0.1."""
    for cookie in (f"{others}; {client.cookie}", f"{client.cookie}; {others}"):
        assert 200 == client.get("/", Cookie=cookie.format(port=client.port)).status


@pytest.mark.parametrize("path", [*PATHS, "/?token=wrong", "/?token="])
@pytest.mark.parametrize(
    "cookie", ["", "other=1", "hami-ui-{port}=wrong", "hami-ui-{port}=", '=;=\x01;"', "hami-ui-1={token}"]
)
def test_another_user_of_the_machine_is_refused(client: Client, path: str, cookie: str) -> None:
    """With a sentence that says what to open, and without a word about the cluster."""
    answer = client.get(path, Cookie=cookie.format(port=client.port, token=client.token))

    assert 403 == answer.status
    assert "Open the address that kubectl hami ui printed" in answer.text  # type: ignore[attr-defined]
    assert None is answer.getheader("Set-Cookie")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil.example:{port}"]
)
@pytest.mark.parametrize("path", ["/api/picture", "/?token={token}"])
def test_a_site_that_gives_its_name_to_loopback_is_refused(client: Client, host: str, path: str) -> None:
    """DNS rebinding: the browser would send what that site may read, so the name decides, whatever else is right."""
    asked = path.format(token=client.token)

    answer = client.get(asked, Cookie=client.cookie, Host=host.format(port=client.port))

    assert 421 == answer.status


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(client: Client, method: str) -> None:
    """The server knows two methods, and both ask."""
    assert 501 == client.get("/api/picture", method, Cookie=client.cookie).status


def test_a_manifest_can_be_sent_to_one_question(client: Client, told: Told) -> None:
    """What the Pods in it would get; nowhere else is a body read."""
    told.reports = [{"pod": "default/new"}]
    headers = {"Cookie": client.cookie, "Origin": f"http://127.0.0.1:{client.port}"}

    answer = client.post("/api/simulate?namespace=a&node=1x1+T4%3A16384", b"kind: Pod", **headers)

    assert (200, '{"reports": [{"pod": "default/new"}]}') == (answer.status, answer.text)  # type: ignore[attr-defined]
    assert [("kind: Pod", "a", ["1x1 T4:16384"])] == told.sent
    assert 404 == client.post("/api/picture", b"x", **headers).status


@pytest.mark.parametrize(
    "origin", ["", "null", "http://127.0.0.1:1", "http://evil.example", "https://127.0.0.1:{port}", "127.0.0.1:{port}"]
)
def test_a_manifest_of_another_page_is_refused(client: Client, told: Told, origin: str) -> None:
    """A page on another port of this host is of the same site, so its requests have the cookie."""
    headers = {"Cookie": client.cookie, **({"Origin": origin.format(port=client.port)} if origin else {})}

    answer = client.post("/api/simulate", b"kind: Pod", **headers)

    assert (403, []) == (answer.status, told.sent)


@pytest.mark.parametrize("length", ["1048577", "9" * 5000, "x", ""], ids=["long", "endless", "no number", "none"])
def test_a_manifest_without_an_end_is_refused(client: Client, told: Told, length: str) -> None:
    """No body is read that is longer than any manifest, or of unknown length."""
    headers = {"Origin": f"http://localhost:{client.port}", "Cookie": client.cookie, "Content-Length": length}

    answer = client.post("/api/simulate", b"", **headers)

    assert (413, "close", []) == (answer.status, answer.getheader("Connection"), told.sent)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/js/../../server.py",
        "//etc/passwd",
        "/static/index.html",
        "/api/pods/default",
        "/api/pods/a/b/c",
        "/api",
    ],
)
def test_only_the_pages_own_files_are_served(client: Client, path: str) -> None:
    """A path is looked up in a table, and never on the disk."""
    assert 404 == client.get(path, Cookie=client.cookie).status


@pytest.mark.parametrize("path", [*PATHS, "/missing", "/?token=wrong"])
def test_every_answer_forbids_what_the_page_does_not_need(client: Client, path: str) -> None:
    """No script, frame, form or connection of others, no guessed type, no address to other sites, no version."""
    answer = client.get(path, Cookie=client.cookie)

    policy = answer.getheader("Content-Security-Policy", "")
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert ("nosniff", "no-referrer", "same-origin") == tuple(
        answer.getheader(name) for name in ("X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Resource-Policy")
    )
    assert "kubectl-hami" == (answer.getheader("Server") or "").strip()


def test_a_picture_that_the_browser_has_is_not_sent_again(client: Client) -> None:
    """An archive never changes, and a cluster at rest seldom."""
    first = client.get("/api/picture", Cookie=client.cookie)

    again = client.get("/api/picture", Cookie=client.cookie, **{"If-None-Match": first.getheader("ETag") or ""})

    assert (304, "") == (again.status, again.text)  # type: ignore[attr-defined]
