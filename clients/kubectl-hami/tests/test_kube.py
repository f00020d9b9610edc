"""
The live cluster: what goes wrong is one sentence that says what to do.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from urllib3 import PoolManager, ProxyManager

from kubectl_hami.read import kube, source
from kubectl_hami.read.kube import LiveCluster, connect, contexts
from kubectl_hami.read.source import Endpoint, ReadError

FORBIDDEN = {"kind": "Status", "message": 'pods is forbidden: User "u" cannot list resource "pods"', "code": 403}


class ApiServer(BaseHTTPRequestHandler):
    """Answers by path: some paths are forbidden, one is large, one is no JSON."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request."""
        path = urlsplit(self.path).path
        if path == "/large":
            self._answer(200, b"x" * 2000)
        elif path == "/html":
            self._answer(502, b"<html>bad\n gateway</html>")
        elif path == "/expired":
            self._answer(401, json.dumps({"kind": "Status", "message": "Unauthorized", "code": 401}).encode())
        elif path == "/proxy/metrics":
            self._answer(401, b"a bearer token is needed\n")
        elif path == "/agent":
            self._answer(200, (self.headers["User-Agent"] + self.headers.get("Authorization", "")).encode())
        else:
            self._answer(403, json.dumps(FORBIDDEN).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    """The address of an API server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def a_kubeconfig(folder: Path, address: str) -> str:
    """Write a kubeconfig with the contexts `one` and `two`, and return its path."""
    file = folder / "kubeconfig"
    named = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("one", "two")]
    named[1]["context"]["namespace"] = "mine"  # type: ignore[index]
    file.write_text(
        yaml.safe_dump(
            {
                "current-context": "one",
                "contexts": named,
                "clusters": [{"name": "c", "cluster": {"server": address}}],
                "users": [{"name": "u", "user": {"token": "t0ken"}}],
            }
        )
    )
    return str(file)


@pytest.fixture
def cluster(tmp_path: Path, address: str) -> LiveCluster:
    """The cluster of the context `two`."""
    [found] = connect(a_kubeconfig(tmp_path, address), ["two"], agent="kubectl-hami/test")
    return found


def test_every_context_is_known_with_its_namespace(tmp_path: Path) -> None:
    """A context without one has `default`, as for kubectl."""
    assert ({"one": "default", "two": "mine"}, "one") == contexts(a_kubeconfig(tmp_path, "http://x"))


def test_requests_have_the_callers_credentials_and_our_name(cluster: LiveCluster) -> None:
    """So an audit log says who asked by which program."""
    assert b"kubectl-hami/testBearer t0ken" == cluster.get("/agent")


def test_missing_right_is_the_servers_sentence(cluster: LiveCluster) -> None:
    """It names the user and the right."""
    with pytest.raises(ReadError, match=r'^/api/v1/pods: pods is forbidden: User "u" cannot list') as caught:
        cluster.get("/api/v1/pods?limit=500")

    assert caught.value.is_forbidden


def test_expired_credentials_are_no_matter_of_rights(cluster: LiveCluster) -> None:
    """Another namespace would not help. What a service behind the API server refuses is something else."""
    with pytest.raises(ReadError, match="does not know you; your credentials may have expired: log in") as caught:
        cluster.get("/expired")
    assert not caught.value.is_forbidden

    with pytest.raises(ReadError, match="a bearer token is needed"):
        cluster.get("/proxy/metrics")


def test_answer_of_something_else_is_one_line(cluster: LiveCluster) -> None:
    """A proxy in between may answer."""
    with pytest.raises(ReadError, match=r"^/html: <html>bad gateway</html>$"):
        cluster.get("/html")


def test_answer_above_the_limit_is_refused(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that answers on a port of a Pod may never stop sending."""
    monkeypatch.setattr(kube, "ANSWER_LIMIT_BYTES", 1000)

    with pytest.raises(ReadError, match=r"^/large: the answer is larger than"):
        cluster.get("/large")
    assert source.ANSWER_LIMIT_BYTES > 1000


def test_missing_right_to_forward_a_port_says_which(cluster: LiveCluster) -> None:
    """A namespaced user meets this first."""
    with pytest.raises(ReadError, match="ask for get and create on pods/portforward in namespace hami") as caught:
        cluster.ask(Endpoint("hami", "hami-scheduler-0", 9396), "/explain/a/b")

    assert caught.value.is_forbidden


def test_api_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """With its address, because the kubeconfig may be of another cluster."""
    [cluster] = connect(a_kubeconfig(tmp_path, "http://127.0.0.1:9"), ["one"], agent="a")

    with pytest.raises(ReadError, match=r"the API server http://127\.0\.0\.1:9 does not answer: .*refused"):
        cluster.get("/version")


@pytest.fixture
def silence() -> Iterator[str]:
    """The address of a server that accepts every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    accepted.append(listener.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        for connection in accepted:
            connection.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda cluster: cluster.get("/version"),
        lambda cluster: cluster.ask(Endpoint("hami", "hami-scheduler-0", 9396), "/settings"),
    ],
    ids=("get", "port-forward"),
)
def test_nothing_waits_longer_than_it_may(tmp_path: Path, silence: str, read: Callable[[LiveCluster], bytes]) -> None:
    """Whatever hangs; the sentence says how to wait longer."""
    [cluster] = connect(a_kubeconfig(tmp_path, silence), ["one"], agent="a", seconds=0.3)
    began = time.monotonic()

    with pytest.raises(ReadError, match=r"no answer within 0\.3 s; --request-timeout gives it more"):
        read(cluster)

    assert time.monotonic() - began < 5


def test_answer_that_trickles_is_not_waited_for(tmp_path: Path) -> None:
    """A byte now and then keeps a socket's own time limit away for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.05)

        threading.Thread(target=trickle, daemon=True).start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        [cluster] = connect(a_kubeconfig(tmp_path, address), ["one"], agent="a", seconds=0.3)

        with pytest.raises(ReadError, match=r"no answer within 0\.3 s"):
            cluster.get("/version")


def test_forward_that_hangs_holds_no_other_up(tmp_path: Path, silence: str, address: str) -> None:
    """The leader's Node may be dead, and the other replica well."""
    [cluster] = connect(a_kubeconfig(tmp_path, silence), ["one"], agent="a", seconds=20)
    with suppress(ReadError):
        cluster._within(0.3, "dead", lambda: cluster.ask(Endpoint("hami", "dead", 9396), "/settings"))
    cluster._new_client = partial(kube._client, a_kubeconfig(tmp_path, address), "one", "a")
    began = time.monotonic()

    with pytest.raises(ReadError, match="pods/portforward"):
        cluster.ask(Endpoint("hami", "well", 9396), "/settings")

    assert time.monotonic() - began < 10


def test_unknown_context_names_those_that_exist(tmp_path: Path) -> None:
    """A typo is seen at once."""
    with pytest.raises(ReadError, match="context onw: is not in the kubeconfig, which has one, two"):
        connect(a_kubeconfig(tmp_path, "http://x"), ["onw"], agent="a")


@pytest.mark.parametrize("text", [None, "", "[", "kind: Config\n"], ids=("missing", "empty", "no yaml", "no context"))
def test_kubeconfig_that_cannot_be_used_says_how_to_name_another(text: str | None, tmp_path: Path) -> None:
    """It is the first thing that a new user lacks."""
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)

    with pytest.raises(ReadError, match="give --kubeconfig, or set KUBECONFIG"):
        contexts(str(file))


def test_the_proxy_is_the_one_that_kubectl_uses(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy gets what `NO_PROXY` does not name. Loopback never goes there, although the variables name a dead one."""
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", address)
    [proxied] = connect(a_kubeconfig(tmp_path, "http://api.example"), ["one"], agent="kubectl-hami/1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    [direct] = connect(a_kubeconfig(tmp_path, address), ["one"], agent="kubectl-hami/1")
    monkeypatch.setenv("NO_PROXY", "192.0.2.0/24")
    [excluded] = connect(a_kubeconfig(tmp_path, "http://192.0.2.1"), ["one"], agent="kubectl-hami/1")

    assert b"kubectl-hami/1" in proxied.get("/agent")
    assert b"kubectl-hami/1" in direct.get("/agent")
    assert isinstance(excluded._api.rest_client.pool_manager, PoolManager)
    assert not isinstance(excluded._api.rest_client.pool_manager, ProxyManager)
